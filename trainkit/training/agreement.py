"""Do all ranks train the same network? Their gradients after the backward, and the code that they run."""

import copy
import hashlib
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.utils.data import DataLoader

from trainkit.compiler.compiler import Compiler
from trainkit.compiler.errors import first_line
from trainkit.compiler.generated_code import CodeAgreement, CompiledCode, compare_code
from trainkit.compiler.policies import without_policies
from trainkit.config.schema import RunConfig
from trainkit.distributed.collectives import gather
from trainkit.distributed.topology import Devices
from trainkit.inputs import tensors_of
from trainkit.training.copies import (
    LOSS_SCALE,
    NET,
    Batches,
    Error,
    TensorKey,
    error_of,
    relative_differences,
    without_dropout,
)
from trainkit.training.criterion import Criterion
from trainkit.training.numerics import FACTOR, TOLERANCES, Answer, coarsest_arithmetic, random_states
from trainkit.training.objective import Objective, build_objective
from trainkit.training.optimizer import OptimizerFactory
from trainkit.training.precision import call_with_autocast
from trainkit.training.task import Task
from trainkit.training.trainer import build_checking_trainer

STEPS = 3  # with a static graph DDP reduces in the first step otherwise than later
DRAWS = "the network draws random numbers outside of torch.nn's dropout: the ranks' own gradients are unknown"


@dataclass(frozen=True)
class Agreement:
    """Whether the ranks agree, and where not. The fields are columns of the row."""

    check_gradients_agree: bool | None = None
    check_ranks_grad_rel_diff: float | None = None
    check_graphs_agree: bool | None = None
    check_kernels_agree: bool | None = None
    check_ranks_reason: str | None = None


@dataclass
class Gradients:
    """Gradients of some steps: a digest of each on this rank, and its error against the mean of the ranks' own."""

    digests: dict[TensorKey, str] = field(default_factory=dict)
    errors: dict[TensorKey, Error] = field(default_factory=dict)
    draws_random_numbers: bool = False


class GradientMeter(Callback):
    """Reads the gradients of each step after the backward, and computes what they should be.

    `reference` is an objective that nobody compiles or wraps: before each step it gets the parameters and buffers of
    the task's, and its gradients on this rank's batch are averaged over the ranks.
    """

    def __init__(self, reference: Objective, precision: str):
        self.gradients = Gradients()
        self._reference, self._precision = reference, precision
        self._expected: dict[str, Tensor] = {}

    def on_train_batch_start(self, trainer: Trainer, task: LightningModule, batch: Any, batch_idx: int) -> None:
        assert isinstance(task, Task)
        states_before = random_states(task.device)
        if task.shards is not None:
            task.shards.gather_parameters()
        self._load(task.objective)
        scale = LOSS_SCALE if self._precision == "16-mixed" else 1.0
        with isolate_rng(include_cuda=task.device.type == "cuda"):
            loss = call_with_autocast(self._reference, batch, self._precision)
            (loss * scale).backward()
            self.gradients.draws_random_numbers |= random_states(task.device) != states_before
        self._expected = {}
        for name, gradient in named_gradients(self._reference).items():
            self._expected[name] = _mean_of_ranks(gradient / scale)
        self._reference.zero_grad()

    def on_after_backward(self, trainer: Trainer, task: LightningModule) -> None:
        assert isinstance(task, Task)
        if task.shards is not None:
            task.shards.gather_gradients()
        scale = trainer.scaler.get_scale() if trainer.scaler is not None else 1.0
        for name, gradient in named_gradients(task.objective).items():
            key = TensorKey("gradients", trainer.global_step, name)
            content = gradient.contiguous().flatten().view(torch.uint8).cpu().numpy().tobytes()
            self.gradients.digests[key] = hashlib.sha256(content).hexdigest()
            if name in self._expected:
                self.gradients.errors[key] = error_of(gradient / scale, self._expected[name])

    @torch.no_grad()
    def _load(self, objective: Objective) -> None:
        tensors = [*objective.parameters(), *objective.buffers()]
        references = [*self._reference.parameters(), *self._reference.buffers()]
        for tensor, reference in zip(tensors, references, strict=False):
            reference.copy_(_whole(tensor))


def named_gradients(objective: Objective) -> dict[str, Tensor]:
    """The gradients of network and loss by the names of their parameters; zeros where the backward left none."""
    gradients = {}
    for name, parameter in objective.named_parameters():
        name = name.removeprefix(NET)
        if parameter.grad is not None:
            gradients[name] = _whole(parameter.grad.detach())
        elif parameter.requires_grad:
            gradients[name] = torch.zeros_like(_whole(parameter.detach()))
    return gradients


def _whole(tensor: Tensor) -> Tensor:
    """A tensor whose parts the ranks have, as a whole."""
    if hasattr(tensor, "full_tensor"):
        whole: Tensor = tensor.full_tensor()
        return whole
    return tensor


def _mean_of_ranks(tensor: Tensor) -> Tensor:
    mean = tensor.clone()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


@dataclass(frozen=True)
class RankTraining:
    """The first steps of a run on this rank's `batches`, from a network and a criterion that are not compiled and stay
    as they are."""

    net: nn.Module
    criterion: Criterion
    batches: Batches
    config: RunConfig
    devices: Devices
    optimizer: OptimizerFactory

    def gradients(self) -> Gradients:
        """Train a copy of the network for STEPS steps in a Trainer as the run's, without dropout or accumulation."""
        config, batches = self.config, self.batches[:STEPS]
        net, criterion = copy.deepcopy((self.net, self.criterion))
        reference = build_objective(config, without_dropout(net), criterion=criterion)
        meter = GradientMeter(reference.to(tensors_of(batches)[0].device).train(), config.amp.precision)
        trainer = build_checking_trainer(config, self.devices, meter)
        with (
            Compiler(without_policies(config.compile)) as compiler,
            isolate_rng(include_cuda=self.devices.type == "cuda"),
        ):
            net, criterion = copy.deepcopy((self.net, self.criterion))
            task = Task(without_dropout(net), compiler, self.optimizer, config, criterion=criterion)
            trainer.fit(task, train_dataloaders=DataLoader(batches, batch_size=None))  # type: ignore[arg-type]
        return meter.gradients


def check_ranks(training: RankTraining, code: CompiledCode, answer: Answer) -> Agreement:
    """Compare the ranks' code and their gradients. All ranks call it.

    `code` is this rank's code of the run's training. `answer` is that of the numerics check, whose differences between
    compiled code and eager pass here too. No Exception is raised for errors in training.
    """
    config, agreement = training.config, Agreement()
    if config.compile.mode != "eager":
        agreement = _with_code(agreement, compare_code(gather(code)))
    try:
        gradients = training.gradients()
        ranks = gather(gradients.digests)
    except Exception as error:  # of any kind: the run that is checked is over, and has its row
        return _because(agreement, f"the ranks could not be compared: {first_line(error)}")
    tolerance = TOLERANCES[coarsest_arithmetic(config.amp)]["gradients"]
    yardsticks = (answer.check_grad_rel_diff or 0.0, answer.check_eager_grad_rel_diff or 0.0)
    return _with_gradients(agreement, gradients, ranks, max(tolerance, FACTOR * max(yardsticks)))


def _with_code(agreement: Agreement, code: CodeAgreement) -> Agreement:
    agreement = replace(agreement, check_graphs_agree=code.graphs, check_kernels_agree=code.kernels)
    return _because(agreement, code.reason)


def _with_gradients(
    agreement: Agreement, gradients: Gradients, ranks: Sequence[Mapping[TensorKey, str]], limit: float
) -> Agreement:
    """Add whether the gradients of the ranks are the same, and within `limit` of the mean of the ranks' own.

    As in the numerics check, rounding may make a gradient jump, so the median of the steps must be within the limit.
    """
    for key in ranks[0]:
        if len({digests.get(key) for digests in ranks}) > 1:
            agreement = replace(agreement, check_gradients_agree=False)
            return _because(agreement, f"gradients of {key.name} are not the same on all ranks in step {key.step + 1}")
    if gradients.draws_random_numbers:
        return _because(agreement, DRAWS)
    steps: dict[str, list[float]] = defaultdict(list)
    for key, difference in relative_differences(gradients.errors).items():
        if difference < math.inf:  # fp16 has overflowed otherwise, and the step is skipped
            steps[key.name].append(difference)
    if not steps:
        return _because(agreement, "no gradient is finite")
    largest = max(max(differences) for differences in steps.values())
    typical = {name: statistics.median_low(differences) for name, differences in steps.items()}
    worst = max(typical, key=lambda name: typical[name])
    agrees = typical[worst] <= limit
    agreement = replace(agreement, check_gradients_agree=agrees, check_ranks_grad_rel_diff=largest)
    if agrees:
        return agreement
    return _because(
        agreement, f"gradients of {worst} differ by {typical[worst]:.1e} from the mean of what each rank computes"
    )


def _because(agreement: Agreement, reason: str | None) -> Agreement:
    """Add a reason to those that are there."""
    reasons = [text for text in (agreement.check_ranks_reason, reason) if text]
    return replace(agreement, check_ranks_reason="; ".join(reasons) or None)
