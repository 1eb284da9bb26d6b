"""Losses of a user's own, (outputs, targets) -> the mean over the batch, and a metric."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric


class Contrastive(nn.Module):
    """Each first view shall be nearest to the second view of the same sample (InfoNCE)."""

    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    def forward(self, outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
        similarity, partners = self.for_metric(outputs, targets)
        return F.cross_entropy(similarity / self.temperature, partners)

    def for_metric(self, outputs: tuple[Tensor, Tensor], targets: Tensor) -> tuple[Tensor, Tensor]:
        first, second = (F.normalize(embedded, dim=-1) for embedded in outputs)
        return first @ second.T, torch.arange(len(first), device=first.device)


class Retrieval(Metric):
    """The share of first views whose own second view is the most similar one in the batch."""

    higher_is_better = True

    def __init__(self) -> None:
        super().__init__()
        self.add_state("right", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, similarity: Tensor, partners: Tensor) -> None:
        self.right += (similarity.argmax(-1) == partners).sum()
        self.total += partners.numel()

    def compute(self) -> Tensor:
        return self.right / self.total


def with_reconstruction(outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
    """The cross entropy of the first output; the second is kept small."""
    logits, decoded = outputs
    return F.cross_entropy(logits, targets) + 0.01 * decoded.square().mean()
