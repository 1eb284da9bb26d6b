"""The metric of a validation: the share of right answers, counted in the network's graph, or one of torchmetrics."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torchmetrics
from torch import Tensor
from torch.utils._pytree import tree_map

from trainkit.results.metric import ACCURACY
from trainkit.training.loss import IGNORE_INDEX

Sum = Callable[[Tensor], Tensor]  # of a tensor over all ranks


class Metric(Protocol):
    """A figure of a whole validation, by its name and its direction.

    `in_graph` is called with the batch's predictions and targets and is compiled with the network; `update` takes what
    it returned.
    """

    name: str
    higher_is_better: bool

    def reset(self, device: torch.device) -> None: ...

    def in_graph(self, predictions: Any, targets: Any) -> Any: ...

    def update(self, scored: Any) -> None: ...

    def compute(self, sum_over_ranks: Sum) -> float | None: ...


class Accuracy:
    """The share of the targets that are predicted; targets of IGNORE_INDEX do not count.

    Predictions are scores of the classes, [B, K, ...] for targets [B, ...]. They are counted in the network's graph,
    so that they need not be written out.
    """

    name = ACCURACY
    higher_is_better = True

    def reset(self, device: torch.device) -> None:
        self._counts = torch.zeros(2, device=device, dtype=torch.float64)  # of right predictions, and of targets

    def in_graph(self, predictions: Tensor, targets: Tensor) -> Tensor:
        right = (predictions.argmax(1) == targets).sum()
        return torch.stack((right, (targets != IGNORE_INDEX).sum()))

    def update(self, scored: Tensor) -> None:
        self._counts += scored

    def compute(self, sum_over_ranks: Sum) -> float | None:
        num_right, num_targets = sum_over_ranks(self._counts).tolist()
        return num_right / num_targets if num_targets else None


class TorchMetric:
    """A metric of torchmetrics, which gathers its own state from all ranks. Its name is that of its class."""

    def __init__(self, metric: torchmetrics.Metric):
        self.name = type(metric).__name__
        self.higher_is_better = bool(metric.higher_is_better)
        self._metric = metric

    def reset(self, device: torch.device) -> None:
        self._metric.to(device).reset()

    def in_graph(self, predictions: Any, targets: Any) -> Any:
        return predictions, targets

    def update(self, scored: Any) -> None:
        self._metric.update(*tree_map(_copied, scored))

    def compute(self, sum_over_ranks: Sum) -> float | None:
        return float(self._metric.compute())


def _copied(leaf: Any) -> Any:
    """A copy of a tensor, at least float32: CUDA graphs overwrite their outputs, and sums in bfloat16 stop growing."""
    if not isinstance(leaf, Tensor):
        return leaf
    dtype = leaf.dtype
    if leaf.is_floating_point():
        dtype = torch.promote_types(dtype, torch.float32)
    return leaf.detach().to(dtype, copy=True)
