"""The loss and the metric of a run: built from the config, and shown to fit the network and the data."""

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torchmetrics
from torch import Tensor, nn

from trainkit.compiler.errors import first_line
from trainkit.config.errors import ConfigError
from trainkit.config.schema import METRIC, RunConfig
from trainkit.training.instantiate import find_target, instantiate_node
from trainkit.training.loss import CrossEntropy
from trainkit.training.metric import Accuracy, Metric, TorchMetric

TENSOR_LOSSES = ("torch", "trainkit")  # packages whose losses take a tensor


@dataclass(frozen=True)
class Criterion:
    """The loss of a run, (outputs, targets) -> the mean over the batch, and the metric of its validations.

    A loss may have a method `for_metric`: (outputs, targets) -> the predictions and targets that the metric takes.
    A loss of torch or trainkit is called with the logits of the outputs, others with whatever the network returns.
    """

    loss: Callable[[Any, Any], Tensor] = field(default_factory=CrossEntropy)
    metric: Metric | None = field(default_factory=Accuracy)

    @property
    def takes_logits(self) -> bool:
        loss = self.loss
        if isinstance(loss, partial):
            loss = loss.func
        return loss.__module__.partition(".")[0] in TENSOR_LOSSES

    def scored(self, outputs: Any, targets: Any) -> Any:
        """What the metric counts of a batch; nothing without a metric."""
        if self.metric is None:
            return ()
        if hasattr(self.loss, "for_metric"):
            outputs, targets = self.loss.for_metric(outputs, targets)
        return self.metric.in_graph(outputs, targets)


def logits_of(outputs: Any) -> Any:
    """The logits in the outputs of a network: `logits` of a dict, a dataclass or a named tuple, or else the outputs."""
    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(outputs, Mapping):  # transformers' ModelOutput is one
        return outputs.get("logits", outputs)
    return getattr(outputs, "logits", outputs)


def trained_logits(outputs: Any) -> Any:
    """The logits that a loss takes: those in the outputs, or the first of several outputs."""
    logits = logits_of(outputs)
    if isinstance(logits, tuple | list) and logits:
        return logits[0]
    return logits


def build_criterion(config: RunConfig) -> Criterion:
    """The loss of `objective._target_` and the metric of `objective.metric`. Raises ConfigError."""
    arguments = {name: value for name, value in config.objective.items() if name != METRIC}
    if inspect.isroutine(find_target("objective", arguments)):
        arguments["_partial_"] = True
    loss = instantiate_node("objective", config.job.objective, arguments)
    if not callable(loss):
        raise ConfigError(
            f"objective._target_ = {arguments['_target_']}: cannot be called; give a class with forward or __call__"
        )
    is_trained = isinstance(loss, nn.Module) and any(parameter.requires_grad for parameter in loss.parameters())
    if is_trained and config.ddp.strategy == "compiled" and config.compile.scope != "step":
        raise ConfigError(
            f"compile.scope = {config.compile.scope}: ddp.strategy = compiled then leaves out the parameters of "
            f"objective = {config.job.objective}; use compile.scope=step or ddp.strategy=ddp"
        )
    return Criterion(loss, _build_metric(config.objective.get(METRIC)))


def _build_metric(node: dict[str, Any] | None) -> Metric | None:
    if node is None or node.get("_target_") is None:
        return None
    name = node["_target_"]
    metric = instantiate_node("objective.metric", name, node)
    if isinstance(metric, Accuracy):
        return metric
    subject = f"objective.metric._target_ = {name}"
    if not isinstance(metric, torchmetrics.Metric):
        raise ConfigError(f"{subject}: is no torchmetrics.Metric; derive it from that class")
    if metric.higher_is_better is None:
        raise ConfigError(f"{subject}: has no direction; set higher_is_better = True or False in a class of yours")
    return TorchMetric(metric)


def check_criterion(config: RunConfig, criterion: Criterion, outputs: Any, targets: Any, sizes: dict[str, Any]) -> None:
    """Raise ConfigError if the loss or the metric does not take the outputs for a batch of the data."""
    if isinstance(criterion.loss, CrossEntropy):
        _check_logits(config, criterion.loss.dim, outputs, targets, sizes.get("num_classes"))
    loss, metric = copy.deepcopy((criterion.loss, criterion.metric))
    tried = f"objective = {config.job.objective}"
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("error", "Using a target size")  # torch broadcasts them
            value = loss(outputs, targets)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ValueError(f"returns {_described(value)}, expected the mean, a tensor with one number")
            if metric is not None:
                tried = f"objective.metric._target_ = {config.objective[METRIC]['_target_']}"
                metric.reset(torch.device("cpu"))
                metric.update(Criterion(loss, metric).scored(outputs, targets))
    except Exception as error:  # of any kind: what a class of the user's raises
        answer = f"outputs {_described(outputs)} for targets {_described(targets)}"
        raise ConfigError(f"{tried}: {first_line(error)}; model = {config.job.model} gives {answer}") from error


def _check_logits(config: RunConfig, dim: int, logits: Any, targets: Any, num_classes: int | None) -> None:
    misfit = f"model = {config.job.model}: does not fit data = {config.job.data}"
    if not isinstance(logits, Tensor):
        problem = (
            f"returns a {type(logits).__name__}; wrap it so that it returns the logits alone, or choose objective=own"
        )
        raise ConfigError(f"{misfit}: {problem}")
    if not isinstance(targets, Tensor) or targets.is_floating_point():
        raise ConfigError(
            f"objective = {config.job.objective}: takes classes, int64, and data = {config.job.data} gives targets "
            f"{_described(targets)}; use objective=mse, or a loss of yours"
        )
    if _shape_without(logits, dim) != targets.shape:
        way_out = "expected the targets' shape and one dimension of classes"
        if _shape_without(logits, 1) == targets.shape:
            way_out = "for classes in dimension 1 say objective.dim=1"
        raise ConfigError(f"{misfit}: gives logits {tuple(logits.shape)} for targets {tuple(targets.shape)}; {way_out}")
    if num_classes is not None and logits.shape[dim] < num_classes:
        raise ConfigError(f"{misfit}: gives {logits.shape[dim]} logits for {num_classes} classes; give it as many")


def _shape_without(tensor: Tensor, dim: int) -> tuple[int, ...]:
    """The shape of a tensor without a dimension; () if it has no such dimension."""
    sizes = list(tensor.shape)
    if not -len(sizes) <= dim < len(sizes):
        return ()
    del sizes[dim]
    return tuple(sizes)


def _described(value: Any) -> str:
    """`float32 (2, 10)` of a tensor, of others their class."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return type(value).__name__
