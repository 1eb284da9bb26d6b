"""Does the requested mode compute the same numbers as eager? The first training steps of both, against float64."""

import math
import pickle
import random
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn

from trainkit.compiler.errors import first_line
from trainkit.config.schema import AmpConfig, RunConfig
from trainkit.training.copies import Batches, CopyTraining, Differences
from trainkit.training.criterion import Criterion
from trainkit.training.optimizer import OptimizerFactory

STEPS = 5
# The relative differences that always pass, by the coarsest arithmetic that the settings allow. TF32 has as many bits
# as float16. Losses, outputs and buffers in float32: five times those of convolutions that round ten times as much as
# eager's. In the others: one rounding. Gradients and parameters have been rounded more often.
TOLERANCES = {
    "float32": {"losses": 1e-5, "outputs": 1e-5, "buffers": 1e-5, "gradients": 1e-4, "parameters": 1e-2},
    "float16": {"losses": 1e-3, "outputs": 1e-3, "buffers": 1e-3, "gradients": 1e-2, "parameters": 1e-1},
    "bfloat16": {"losses": 1e-2, "outputs": 1e-2, "buffers": 1e-2, "gradients": 5e-2, "parameters": 1e-1},
}
CONTINUOUS = ("losses", "outputs", "buffers")  # gradients and parameters jump at the corner of a ReLU
FACTOR = 4  # correct code that exceeds a tolerance stays within twice eager's difference
JITTER = 1e-5  # a hundred roundings of float32: convolutions that round that much do not jump more often


@dataclass(frozen=True)
class Answer:
    """Whether the requested mode computes the right numbers, the reason if not, and how large the differences are.

    The fields are columns of the row: the largest relative differences to float64, of the requested mode and of eager
    in the requested precision. Parameters include buffers. None: not measured, or not finite.
    """

    check_passed: bool | None
    check_reason: str | None = None
    check_loss_rel_diff: float | None = None
    check_grad_rel_diff: float | None = None
    check_param_rel_diff: float | None = None
    check_eager_loss_rel_diff: float | None = None
    check_eager_grad_rel_diff: float | None = None
    check_eager_param_rel_diff: float | None = None


@dataclass(frozen=True)
class OutputAnswer:
    """The same of the outputs of calls."""

    check_passed: bool | None
    check_reason: str | None = None
    check_output_rel_diff: float | None = None
    check_eager_output_rel_diff: float | None = None


class Verdict(NamedTuple):
    """Whether the numbers are right, None if that is unknown, and the reason."""

    passed: bool | None
    reason: str | None = None


class NamedTensor(NamedTuple):
    """A tensor of all steps: its kind and its name in the network."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.name}" if self.name else self.kind


def same_answer(
    net: nn.Module,
    batches: Batches,
    config: RunConfig,
    optimizer: OptimizerFactory,
    device: torch.device,
    criterion: Criterion | None = None,
) -> Answer:
    """Whether the requested mode computes the same numbers as eager over the first STEPS batches.

    Copies of `net` and `criterion` (on the CPU, not compiled; they stay as they are) train one after another: eager in
    float64, then eager and the requested mode in the requested precision. Each step starts from the float64 copy's
    parameters and buffers: otherwise rounding alone would drive the copies apart, until their differences mean nothing.
    As in the run: autocast, clipping, warm-up of the learning rate, activation checkpointing, channels_last. Not as in
    the run: no accumulation, DDP or dropout (0 in torch.nn's modules), and a fixed loss scale for fp16.

    The numbers pass within the tolerance of the arithmetic, or within FACTOR times the largest difference of eager in
    any step. Losses and buffers must do so in every step. Gradients and parameters must in most steps: they jump when
    rounding moves one unit across the corner of a ReLU or a max-pooling; so their eager is also measured with the
    weights moved by JITTER. A value that is not finite does not pass if eager's is.

    All parameters count as one tensor: Adam makes a whole step from a gradient that is zero but for rounding, as that
    of a bias before BatchNorm.

    `check_passed` is None without a yardstick: random numbers from elsewhere than torch.nn's dropout, an eager mode
    that is itself far from float64, a copy that cannot be trained (a kernel without float64, memory). No Exception is
    raised for errors in training.

    Needs memory for one copy at a time on the device, and on the CPU for STEPS times the float32 gradients, parameters
    and buffers. Random states and the default dtype are restored; the caller resets compiled code before and after.
    """
    if not batches:
        return Answer(None, "no batch to compare on")
    training = CopyTraining(net, batches[:STEPS], config, optimizer, device, criterion)
    mode = config.compile.mode
    with isolate_rng(include_cuda=device.type == "cuda"):
        states_before = random_states(device)
        trained_in = "float64"
        try:
            training.train_reference()
            trained_in = "eager"
            eager = training.differences()
            if random_states(device) != states_before:
                return Answer(None, "the network draws random numbers outside of torch.nn's dropout: modes draw others")
            jittered = training.differences(jitter=JITTER)
            trained_in = mode
            requested = eager
            if mode != "eager":
                requested = training.differences(compiled=True)
        except Exception as error:  # of any kind: the run that is checked is over, and has its row
            return Answer(None, f"the copy in {trained_in} could not be trained: {first_line(error)}")
        finally:
            training.compiler.restore()
    verdict = _judge(requested, eager, jittered, TOLERANCES[coarsest_arithmetic(config.amp)])
    return Answer(*verdict, *_largest(requested), *_largest(eager))


def judge_outputs(requested: Differences, eager: Differences, amp: AmpConfig) -> OutputAnswer:
    """Whether the outputs of calls are right, by their differences to float64 and those of eager."""
    verdict = _judge(requested, eager, eager, TOLERANCES[coarsest_arithmetic(amp)])
    return OutputAnswer(*verdict, _largest_of_kinds(requested, "outputs"), _largest_of_kinds(eager, "outputs"))


def _judge(requested: Differences, eager: Differences, jittered: Differences, tolerances: dict[str, float]) -> Verdict:
    """Of several reasons the first one, in the order in which a step computes."""
    return (
        _judge_finiteness(requested, eager)
        or _judge_yardstick(eager)
        or _judge_sizes(requested, eager, jittered, tolerances)
        or Verdict(True)
    )


def _judge_finiteness(requested: Differences, eager: Differences) -> Verdict | None:
    for key, difference in requested.items():
        if difference == math.inf and eager[key] < math.inf:
            tensor = NamedTensor(key.kind, key.name)
            return Verdict(False, f"{tensor} are not finite in step {key.step + 1}, eager's are")
    for key, difference in eager.items():
        if difference == math.inf:
            tensor = NamedTensor(key.kind, key.name)
            return Verdict(None, f"eager's own {tensor} are not finite in step {key.step + 1}")
    return None


def _judge_yardstick(eager: Differences) -> Verdict | None:
    """Eager is a yardstick if, of the tensors of a kind, at least one is near to float64."""
    eager_by_tensor = _by_tensor(eager)
    for kind in ("losses", "outputs", "gradients"):
        nearest = math.inf
        for tensor, differences in eager_by_tensor.items():
            difference = _typical(kind, differences)
            if tensor.kind == kind and 0 < difference < nearest:
                nearest = difference
        if nearest < math.inf and nearest * FACTOR > 1:
            return Verdict(None, f"eager's own {kind} differ from float64 by {nearest:.1e} or more: no yardstick")
    return None


def _judge_sizes(
    requested: Differences, eager: Differences, jittered: Differences, tolerances: dict[str, float]
) -> Verdict | None:
    """Fails for the kind's tensor that exceeds its limit by the largest factor."""
    requested_by_tensor = _by_tensor(requested)
    eager_by_tensor = _by_tensor(eager)
    jittered_by_tensor = _by_tensor(jittered)
    for kind, tolerance in tolerances.items():
        worst, largest_excess = None, 1.0
        for tensor, differences in requested_by_tensor.items():
            if tensor.kind != kind:
                continue
            yardsticks = list(eager_by_tensor[tensor])
            if kind not in CONTINUOUS:
                yardsticks += [value for value in jittered_by_tensor[tensor] if value < math.inf]
            excess = _typical(kind, differences) / max(FACTOR * max(yardsticks), tolerance)
            if excess > largest_excess:
                worst, largest_excess = tensor, excess
        if worst is not None:
            difference = _typical(kind, requested_by_tensor[worst])
            eager_difference = max(eager_by_tensor[worst])
            return Verdict(False, f"{worst} differ from float64 by {difference:.1e}, eager's by {eager_difference:.1e}")
    return None


def _by_tensor(differences: Differences) -> dict[NamedTensor, list[float]]:
    """The differences of each tensor in all steps."""
    by_tensor = defaultdict(list)
    for key, difference in differences.items():
        by_tensor[NamedTensor(key.kind, key.name)].append(difference)
    return by_tensor


def _typical(kind: str, differences: list[float]) -> float:
    """The difference that must pass: the largest, or the median of the steps if rounding makes the kind jump."""
    if kind in CONTINUOUS:
        return max(differences)
    return statistics.median_low(differences)


def _largest(differences: Differences) -> tuple[float | None, float | None, float | None]:
    """The largest difference of losses, of gradients, and of parameters and buffers."""
    return (
        _largest_of_kinds(differences, "losses"),
        _largest_of_kinds(differences, "gradients"),
        _largest_of_kinds(differences, "parameters", "buffers"),
    )


def _largest_of_kinds(differences: Differences, *kinds: str) -> float | None:
    """The largest difference; None without any, or if it is not finite."""
    largest = max((value for key, value in differences.items() if key.kind in kinds), default=math.inf)
    return largest if largest < math.inf else None


def coarsest_arithmetic(amp: AmpConfig) -> str:
    """The coarsest arithmetic that the settings allow: a key of TOLERANCES."""
    if amp.precision == "32-true":
        return {"highest": "float32", "high": "float16", "medium": "bfloat16"}[amp.matmul_precision]
    return {"16-mixed": "float16", "bf16-mixed": "bfloat16"}[amp.precision]


def random_states(device: torch.device) -> list[bytes]:
    """The states of all global random number generators that a network may use."""
    states = [pickle.dumps((random.getstate(), np.random.get_state())), bytes(torch.get_rng_state().tolist())]
    if device.type == "cuda":
        states.append(bytes(torch.cuda.get_rng_state(device).tolist()))
    return states
