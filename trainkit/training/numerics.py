"""Does the asked mode compute what eager computes? The first training steps of both, against float64."""

import copy
import math
import pickle
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from trainkit.compiler.apply import Compiler
from trainkit.compiler.errors import first_line
from trainkit.config.schema import AmpConfig, RunConfig
from trainkit.training.objective import Objective, build_objective
from trainkit.training.optimizer import schedule_factor
from trainkit.training.precision import call_with_autocast

STEPS = 5
# What passes however near eager is, by the coarsest arithmetic allowed; TF32 has as many bits as float16. Losses and
# buffers in float32: five times those of convolutions that round ten times as much as eager's. In the others: one
# rounding. Gradients and parameters have rounded more often.
TOLERANCES = {
    "float32": {"losses": 1e-5, "buffers": 1e-5, "gradients": 1e-4, "parameters": 1e-2},
    "float16": {"losses": 1e-3, "buffers": 1e-3, "gradients": 1e-2, "parameters": 1e-1},
    "bfloat16": {"losses": 1e-2, "buffers": 1e-2, "gradients": 5e-2, "parameters": 1e-1},
}
CONTINUOUS = ("losses", "buffers")
FACTOR = 4  # where right code is beyond a tolerance it is within twice of eager's
SHARE = 0.1
JITTER = 1e-5  # a hundred roundings of float32: such convolutions do not jump more often
LOSS_SCALE = 1024.0  # a power of two: scaling rounds nothing, and no gradient below 64 overflows
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)

Place = tuple[str, int, str]  # a kind of TOLERANCES, the step from 0, the tensor's name in the network
Differences = dict[Place, float]


@dataclass(frozen=True)
class Answer:
    """Whether the asked mode's numbers are right; why they are not, or why that cannot be told; how far off they are.

    The fields are those of results.Row: the largest relative differences to float64, of the asked mode and of eager in
    the asked precision. Parameters include buffers. None: not measured, or not finite.
    """

    check_passed: bool | None
    check_reason: str | None = None
    check_loss_rel_diff: float | None = None
    check_grad_rel_diff: float | None = None
    check_param_rel_diff: float | None = None
    check_eager_loss_rel_diff: float | None = None
    check_eager_grad_rel_diff: float | None = None
    check_eager_param_rel_diff: float | None = None


def same_answer(
    net: nn.Module,
    batches: list[tuple[Tensor, Tensor]],
    config: RunConfig,
    optimizer: Callable[..., Optimizer],
    device: torch.device,
) -> Answer:
    """Whether the asked mode computes what eager computes, in the asked precision, over the first STEPS batches.

    Copies of `net` (on the CPU, not compiled; it stays as it is) train one after another: in eager in float64, in
    eager, in the asked mode. Each step starts from the float64 copy's parameters and buffers: left alone, copies drift
    apart by rounding alone, until their differences say nothing. As in the run: autocast, clipping, warm-up of the
    learning rate, activation checkpointing, channels_last. Not: accumulation, DDP, dropout (0 in torch.nn's modules),
    GradScaler's search for a scale (fp16 has LOSS_SCALE).

    A relative difference is the norm of a tensor's difference to float64 over the norm of the float64 tensor, or over
    that of a tensor with SHARE of the RMS of all gradients (buffers) of the step, if that is larger: a bias before
    BatchNorm has a true gradient of zero. All parameters are one tensor: of such a gradient Adam makes a whole step.

    It passes where it is within the tolerance of the arithmetic, or FACTOR times the largest that eager has in any
    step. Losses and buffers must be so in every step. Gradients and parameters must be in most: they jump when
    rounding moves one unit across the corner of a ReLU or a max-pooling; for them eager is also measured with its
    weights moved by JITTER. A value that is not finite does not pass where eager's is.

    `check_passed` is None where there is no yardstick: random numbers from elsewhere than torch.nn's dropout, an eager
    mode that is itself far from float64, a copy that cannot be trained (a kernel without float64, memory). No
    Exception is raised for what happens in training.

    Takes memory for one copy at a time on the device, and on the CPU for STEPS times the float32 gradients,
    parameters and buffers. Random states and the default dtype are afterwards as before; code that was compiled is
    the caller's to reset, before and after.
    """
    if not batches:
        return Answer(None, "no batch to compare on")
    training = _Training(net, batches[:STEPS], config, optimizer, device)
    mode = config.compile.mode.value
    with isolate_rng(include_cuda=device.type == "cuda"):
        before = _random_states(device)
        copy_in = "float64"
        try:
            training.refer()
            copy_in = "eager"
            eager = training.differences()
            if _random_states(device) != before:
                return Answer(None, "the network draws random numbers outside of torch.nn's dropout: modes draw others")
            jittered = training.differences(jitter=JITTER)
            copy_in = mode
            asked = eager if mode == "eager" else training.differences(compiled=True)
        except Exception as error:  # of any kind: the run that is checked is over, and has its row
            return Answer(None, f"the copy in {copy_in} could not be trained: {first_line(error)}")
        finally:
            training.compiler.restore()
    passed, reason = _verdict(asked, eager, jittered, TOLERANCES[_arithmetic(config.amp)])
    return Answer(passed, reason, *_largest(asked), *_largest(eager))


class _Training:
    """The same first steps of a training, as often as asked for; `reference` holds what they gave in float64."""

    def __init__(
        self,
        net: nn.Module,
        batches: list[tuple[Tensor, Tensor]],
        config: RunConfig,
        optimizer: Callable[..., Optimizer],
        device: torch.device,
    ):
        self.net, self.batches, self.config, self.optimizer, self.device = net, batches, config, optimizer, device
        self.reference: dict[Place, Tensor] = {}
        self.compiler = Compiler(config.compile)

    def refer(self) -> None:
        """Train in float64, and keep the reference on the CPU in float32: 6e-8 off; scalars, so losses, are exact."""
        # The type is for what a network makes in its forward; no other attention kernel takes it on every device.
        with _default_dtype(torch.float64), sdpa_kernel(SDPBackend.MATH):
            for place, tensor in self._steps(double=True):
                narrow = torch.float32 if tensor.is_floating_point() and tensor.ndim else tensor.dtype
                self.reference[place] = tensor.detach().to("cpu", narrow, copy=True)

    def differences(self, *, jitter: float = 0.0, compiled: bool = False) -> Differences:
        """Train in the asked precision: the relative difference of every tensor to the reference, inf for NaN."""
        errors: dict[Place, tuple[float, float, int]] = {}
        squares: dict[tuple[str, int], float] = defaultdict(float)  # of all tensors of a kind in a step
        numels: dict[tuple[str, int], int] = defaultdict(int)
        for place, tensor in self._steps(jitter=jitter, compiled=compiled):
            error, norm = _error(tensor, self.reference[place])
            errors[place] = error, norm, tensor.numel()
            squares[place[:2]] += norm**2
            numels[place[:2]] += tensor.numel()
        found = {}
        for place, (error, norm, numel) in errors.items():
            least = SHARE * math.sqrt(squares[place[:2]] / max(numels[place[:2]], 1) * numel)
            found[place] = error / max(norm, least, sys.float_info.min) if math.isfinite(error) else math.inf
        return found

    def _steps(
        self, *, double: bool = False, jitter: float = 0.0, compiled: bool = False
    ) -> Iterator[tuple[Place, Tensor]]:
        """Train a copy. Every tensor is to be read before the next is asked for: CUDA graphs write over it."""
        trainer, precision = self.config.trainer, "32-true" if double else self.config.amp.precision.value
        objective = build_objective(self.config, _without_dropout(copy.deepcopy(self.net))).to(self.device).train()
        call: Callable[..., Tensor] = objective
        if double:
            objective.double()
        if compiled:
            self.compiler.apply(objective, self.config.ddp.optimize_ddp)
            call = self.compiler
        parameters = list(objective.parameters())
        optimizer = self.optimizer(objective.parameters())
        warm_up = LambdaLR(optimizer, schedule_factor("constant", trainer.warmup_steps, 0))
        scale = LOSS_SCALE if precision == "16-mixed" else 1.0
        for step, (inputs, targets) in enumerate(self.batches):
            self._start(objective, step, jitter)
            inputs, targets = inputs.to(self.device), targets.to(self.device)
            inputs = inputs.double() if double and inputs.is_floating_point() else inputs
            loss = call_with_autocast(call, (inputs, targets), precision)
            (loss * scale).backward()
            yield ("losses", step, ""), loss
            for name, buffer in zip(dict(self.net.named_buffers()), objective.buffers(), strict=True):
                yield ("buffers", step, name), buffer
            for name, parameter in zip(dict(self.net.named_parameters()), parameters, strict=True):
                if parameter.grad is not None:
                    yield ("gradients", step, name), parameter.grad.div_(scale)
                elif parameter.requires_grad:
                    yield ("gradients", step, name), torch.zeros_like(parameter)
            if trainer.gradient_clip_val is not None:
                nn.utils.clip_grad_norm_(parameters, trainer.gradient_clip_val)
            optimizer.step()
            optimizer.zero_grad()
            warm_up.step()
            # Not nn.utils.parameters_to_vector, which takes no channels_last.
            yield ("parameters", step, ""), torch.cat([parameter.flatten() for parameter in parameters])

    @torch.no_grad()
    def _start(self, objective: Objective, step: int, jitter: float) -> None:
        """Load the reference's parameters and buffers as they were at the start of a step, and move the parameters by
        normal noise of `jitter` times their size. float64 loads them too, to go on from what was rounded for all."""
        parameters = list(objective.parameters())
        if step > 0:
            kept = self.reference["parameters", step - 1, ""].split([parameter.numel() for parameter in parameters])
            for parameter, values in zip(parameters, kept, strict=True):
                parameter.copy_(values.view_as(parameter))
            for name, buffer in zip(dict(self.net.named_buffers()), objective.buffers(), strict=True):
                buffer.copy_(self.reference["buffers", step - 1, name])
        if jitter:
            noise = torch.Generator().manual_seed(step)
            for parameter in parameters:
                parameter.mul_(1 + jitter * torch.randn(parameter.shape, generator=noise).to(parameter.device))


def _verdict(
    asked: Differences, eager: Differences, jittered: Differences, tolerances: dict[str, float]
) -> tuple[bool | None, str | None]:
    """Whether it passes, and why not. Of several reasons the first, in the order in which a step computes."""
    for (kind, step, name), difference in asked.items():
        if difference == math.inf and eager[kind, step, name] < math.inf:
            return False, f"{_named(kind, name)} are not finite in step {step + 1}, eager's are"
    for (kind, step, name), difference in eager.items():
        if difference == math.inf:
            return None, f"eager's own {_named(kind, name)} are not finite in step {step + 1}"
    ours, eagers, moved = _by_tensor(asked), _by_tensor(eager), _by_tensor(jittered)
    for kind in ("losses", "gradients"):
        typical = [_typical(kind, values) for (of, _), values in eagers.items() if of == kind]
        nearest = min((value for value in typical if value > 0), default=0.0)
        if nearest * FACTOR > 1:
            return None, f"eager's own {kind} differ from float64 by {nearest:.1e} or more: no yardstick"
    for kind, tolerance in tolerances.items():
        excess = {}
        for tensor in (tensor for tensor in ours if tensor[0] == kind):
            yardsticks = eagers[tensor] + [
                value for value in moved[tensor] if value < math.inf and kind not in CONTINUOUS
            ]
            excess[tensor] = _typical(kind, ours[tensor]) / max(FACTOR * max(yardsticks), tolerance)
        if excess and max(excess.values()) > 1:
            worst = max(excess, key=excess.__getitem__)
            found, allowed = _typical(kind, ours[worst]), max(eagers[worst])
            return False, f"{_named(*worst)} differ from float64 by {found:.1e}, eager's by {allowed:.1e}"
    return True, None


def _by_tensor(differences: Differences) -> dict[tuple[str, str], list[float]]:
    """By kind and name of a tensor: its differences in all steps."""
    found = defaultdict(list)
    for (kind, _, name), difference in differences.items():
        found[kind, name].append(difference)
    return found


def _typical(kind: str, differences: list[float]) -> float:
    """The one of a tensor's differences that must pass: the largest, or that of most steps where rounding jumps."""
    return max(differences) if kind in CONTINUOUS else statistics.median_low(differences)


def _named(kind: str, name: str) -> str:
    return f"{kind} of {name}" if name else kind


def _largest(differences: Differences) -> tuple[float | None, float | None, float | None]:
    """The largest difference of losses, gradients, parameters and buffers. None where there is none or no number."""

    def of(*kinds: str) -> float | None:
        largest = max((value for place, value in differences.items() if place[0] in kinds), default=math.inf)
        return largest if largest < math.inf else None

    return of("losses"), of("gradients"), of("parameters", "buffers")


def _error(tensor: Tensor, reference: Tensor) -> tuple[float, float]:
    """(norm of the difference, norm of the reference), computed in float64. Equal infinities differ by nothing."""
    tensor = tensor.detach()
    wide = torch.promote_types(torch.promote_types(tensor.dtype, reference.dtype), torch.float64)
    tensor, reference = tensor.to(wide), reference.to(tensor.device, wide)
    difference = torch.where(tensor == reference, 0, tensor - reference)
    finite = torch.where(reference.isfinite(), reference, 0)
    return float(torch.linalg.vector_norm(difference)), float(torch.linalg.vector_norm(finite))


def _arithmetic(amp: AmpConfig) -> str:
    """The coarsest arithmetic that the settings allow: a key of TOLERANCES."""
    if amp.precision.value == "32-true":
        return {"highest": "float32", "high": "float16", "medium": "bfloat16"}[amp.matmul_precision.value]
    return {"16-mixed": "float16", "bf16-mixed": "bfloat16"}[amp.precision.value]


def _without_dropout(net: nn.Module) -> nn.Module:
    """The network, whose modules of torch.nn drop nothing from now on."""
    for module in net.modules():
        if isinstance(module, DROPOUTS):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0
    return net


def _random_states(device: torch.device) -> list[bytes]:
    """The states of all global random number generators that a network may draw from."""
    states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])
    return [pickle.dumps((random.getstate(), np.random.get_state())), *(bytes(state.tolist()) for state in states)]


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
