"""A network that is slow uncompiled and breaks its graph, and backends that do what no setting should."""

import time

import torch
from torch import nn
from torch._dynamo import register_backend

DIGITS = 64


@torch._dynamo.disable
def pause() -> None:
    """Break the graph, and take so long that what disturbs a machine is small beside it."""
    time.sleep(0.004)


class Net(nn.Module):
    """Takes 44 ms uncompiled and 4 ms compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(DIGITS, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            time.sleep(0.04)
        hidden = images.flatten(1)
        pause()
        return self.linear(hidden)


@register_backend
def planted_wrong(graph, inputs):
    return lambda *arguments: [1.5 * output for output in graph(*arguments)]


@register_backend
def planted_oom(graph, inputs):
    def run(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80 GiB")

    return run


@register_backend
def planted_hang(graph, inputs):
    time.sleep(3600)
