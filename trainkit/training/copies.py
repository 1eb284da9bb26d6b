"""Copies of a network that train over the same first steps, each compared with a float64 reference."""

import copy
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from trainkit.compiler.compiler import Compiler
from trainkit.compiler.policies import without_policies
from trainkit.config.schema import RunConfig
from trainkit.inputs import Batch, to_device, to_double
from trainkit.training.criterion import Criterion
from trainkit.training.objective import Objective, build_objective
from trainkit.training.optimizer import OptimizerFactory, schedule_factor
from trainkit.training.precision import call_with_autocast

SHARE = 0.1  # of a mean tensor's norm: a difference is relative to no less
LOSS_SCALE = 1024.0  # a power of two: scaling rounds nothing, and no gradient below 64 overflows
NET = "net."  # before the names of the network's tensors in an objective
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)

Batches = list[Batch]


class TensorKey(NamedTuple):
    """A tensor of a training step: its kind (losses, gradients, buffers or parameters), the step from 0, and its name
    in the network; "" for the loss, and for the parameters, which are one tensor. Or one of a call's outputs."""

    kind: str
    step: int
    name: str


Differences = dict[TensorKey, float]  # relative, to the reference; inf for NaN


@dataclass
class Copy:
    """A copy of the network, ready to train. `call` is its objective, or the compiler that calls it."""

    objective: Objective
    call: Callable[..., Tensor]
    optimizer: Optimizer
    warm_up: LambdaLR
    precision: str
    dtype: torch.dtype


class CopyTraining:
    """The same first steps of a training, repeated with one copy of the network after another.

    `net` and `criterion` stay as they are. The float64 copy trains first, by `train_reference`; the others start each
    step from its parameters and buffers. Dropout of torch.nn's modules is 0.
    """

    def __init__(
        self,
        net: nn.Module,
        batches: Batches,
        config: RunConfig,
        optimizer: OptimizerFactory,
        device: torch.device,
        criterion: Criterion | None = None,
    ):
        self.compiler = Compiler(without_policies(config.compile))
        self._net, self._criterion = net, criterion or Criterion()
        self._batches, self._config = batches, config
        self._optimizer, self._device = optimizer, device
        self._reference: dict[TensorKey, Tensor] = {}

    def train_reference(self) -> None:
        """Train in float64. The reference is kept on the CPU in float32: 6e-8 off; losses, as scalars, are exact."""
        # The default dtype is for tensors that a network makes in its forward. MATH is the only attention kernel that
        # takes float64 on every device.
        with default_dtype(torch.float64), sdpa_kernel(SDPBackend.MATH):
            for key, tensor in self._train(self._make_copy(torch.float64)):
                dtype = tensor.dtype
                if tensor.is_floating_point() and tensor.ndim > 0:
                    dtype = torch.float32
                self._reference[key] = tensor.detach().to("cpu", dtype, copy=True)

    def differences(self, *, jitter: float = 0.0, compiled: bool = False) -> Differences:
        """Train in the requested precision, and return the relative difference of every tensor to the reference.

        `jitter`: the relative size of the noise that moves the parameters.
        """
        errors: dict[TensorKey, Error] = {}
        for key, tensor in self._train(self._make_copy(torch.float32, compiled), jitter):
            errors[key] = error_of(tensor, self._reference[key])
        return relative_differences(errors)

    def _make_copy(self, dtype: torch.dtype, compiled: bool = False) -> Copy:
        precision: str = self._config.amp.precision
        net, criterion = copy.deepcopy((self._net, self._criterion))
        objective = build_objective(self._config, without_dropout(net), criterion=criterion)
        objective.to(self._device).train()
        if dtype == torch.float64:
            objective.double()
            precision = "32-true"  # no autocast
        call: Callable[..., Tensor] = objective
        if compiled:
            self.compiler.apply(objective, self._config.ddp)
            call = self.compiler
        optimizer = self._optimizer(objective)
        factor = schedule_factor("constant", self._config.trainer.warmup_steps, 0)
        return Copy(objective, call, optimizer, LambdaLR(optimizer, factor), precision, dtype)

    def _train(self, trained: Copy, jitter: float = 0.0) -> Iterator[tuple[TensorKey, Tensor]]:
        """Train a copy, and give each tensor of each step. Read it before the next: CUDA graphs overwrite it."""
        clip_norm = self._config.trainer.gradient_clip_val
        scale = LOSS_SCALE if trained.precision == "16-mixed" else 1.0
        parameters = list(trained.objective.parameters())
        for step, (inputs, targets) in enumerate(self._batches):
            if step > 0:
                self._load_reference(trained.objective, step - 1)
            if jitter > 0:
                _add_noise(parameters, jitter, step, self._device)
            inputs, targets = to_device((inputs, targets), self._device)
            if trained.dtype == torch.float64:
                inputs, targets = to_double((inputs, targets))
            loss = call_with_autocast(trained.call, (inputs, targets), trained.precision)
            (loss * scale).backward()
            yield TensorKey("losses", step, ""), loss
            for name, buffer in self._named_buffers(trained.objective):
                yield TensorKey("buffers", step, name), buffer
            for name, parameter in zip(dict(self._plain.named_parameters()), parameters, strict=True):
                name = name.removeprefix(NET)
                if parameter.grad is not None:
                    yield TensorKey("gradients", step, name), parameter.grad.div_(scale)
                elif parameter.requires_grad:
                    yield TensorKey("gradients", step, name), torch.zeros_like(parameter)
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters, clip_norm)
            trained.optimizer.step()
            trained.optimizer.zero_grad()
            trained.warm_up.step()
            # nn.utils.parameters_to_vector does not take channels_last.
            yield TensorKey("parameters", step, ""), torch.cat([parameter.flatten() for parameter in parameters])

    def _named_buffers(self, objective: Objective) -> Iterator[tuple[str, Tensor]]:
        """The buffers of a copy by their names in the network, which activation checkpointing changes."""
        names = [name.removeprefix(NET) for name, _ in self._plain.named_buffers()]
        return zip(names, objective.buffers(), strict=True)

    @property
    def _plain(self) -> Objective:
        """The network and the loss without transformations, for the names of their tensors."""
        return Objective(self._net, criterion=self._criterion)

    @torch.no_grad()
    def _load_reference(self, objective: Objective, step: int) -> None:
        """Load the reference's parameters and buffers after a step.

        The float64 copy loads them too: then all copies continue from the same rounded values.
        """
        parameters = list(objective.parameters())
        numels = [parameter.numel() for parameter in parameters]
        values_of_all = self._reference[TensorKey("parameters", step, "")].to(self._device).split(numels)
        for parameter, values in zip(parameters, values_of_all, strict=True):
            parameter.copy_(values.view_as(parameter))
        for name, buffer in self._named_buffers(objective):
            buffer.copy_(self._reference[TensorKey("buffers", step, name)])


@torch.no_grad()
def _add_noise(parameters: list[nn.Parameter], size: float, seed: int, device: torch.device) -> None:
    """Multiply the parameters, which are on the device, by 1 + normal noise of a relative size."""
    generator = torch.Generator(device).manual_seed(seed)
    for parameter in parameters:
        noise = torch.randn(parameter.shape, generator=generator, device=device)
        parameter.mul_(1 + size * noise)


class Error(NamedTuple):
    """The norms of a tensor's difference to its reference and of the reference, and the number of its elements."""

    norm: float
    reference_norm: float
    numel: int


def relative_differences(errors: dict[TensorKey, Error]) -> Differences:
    """The relative differences of tensors to their references.

    Each is relative to the norm of the reference, or to that of a tensor with SHARE of the RMS of all tensors of the
    kind in the step, if that is larger.
    """
    squares: dict[tuple[str, int], float] = defaultdict(float)  # by kind and step, over all tensors
    numels: dict[tuple[str, int], int] = defaultdict(int)
    for key, error in errors.items():
        squares[key.kind, key.step] += error.reference_norm**2
        numels[key.kind, key.step] += error.numel
    differences = {}
    for key, error in errors.items():
        mean_square = squares[key.kind, key.step] / max(numels[key.kind, key.step], 1)
        least = SHARE * math.sqrt(mean_square * error.numel)
        differences[key] = math.inf
        if math.isfinite(error.norm):
            differences[key] = error.norm / max(error.reference_norm, least, sys.float_info.min)
    return differences


def error_of(tensor: Tensor, reference: Tensor) -> Error:
    """The error of a tensor, in float64. Equal infinities have no difference."""
    tensor = tensor.detach()
    dtype = torch.promote_types(torch.promote_types(tensor.dtype, reference.dtype), torch.float64)
    tensor = tensor.to(dtype)
    reference = reference.to(tensor.device).to(dtype)  # in one call the CPU would convert it
    difference = torch.where(tensor == reference, 0, tensor - reference)
    finite = torch.where(reference.isfinite(), reference, 0)
    norm, reference_norm = torch.linalg.vector_norm(difference), torch.linalg.vector_norm(finite)
    return Error(float(norm), float(reference_norm), tensor.numel())


def without_dropout(net: nn.Module) -> nn.Module:
    """The network, with dropout 0 in all its modules of torch.nn."""
    for module in net.modules():
        if isinstance(module, DROPOUTS):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0
    return net


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """A context with another default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
