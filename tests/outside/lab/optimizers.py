"""Parameter groups of a user's own."""

from typing import Any

from torch import nn


def faster_head(network: nn.Module, lr: float) -> list[dict[str, Any]]:
    """The head at a learning rate of its own."""
    head, others = [], []
    for name, parameter in network.named_parameters():
        (head if "head" in name else others).append(parameter)
    return [{"params": others}, {"params": head, "lr": lr}]
