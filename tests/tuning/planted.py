"""A network that is slow uncompiled and breaks its graph, and backends and a layout that do what no setting should."""

import time

import torch
from torch import nn
from torch._dynamo import register_backend


@torch._dynamo.disable
def pause() -> None:
    """Break the graph, and take so long that what disturbs a machine is small beside it."""
    time.sleep(0.004)


@torch._dynamo.disable
def break_graph() -> None:
    pass


class Net(nn.Module):
    """Takes 44 ms uncompiled and 4 ms compiled. In channels_last it would be the fastest, but nothing is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 2, 3)
        self.last = nn.Conv2d(2, 10, 6)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.last.weight.stride(1) == 1:
            for _ in range(2):  # a break in a loop leaves the function to Python
                break_graph()
            return self.last(self.first(images)).flatten(1)
        if not torch.compiler.is_compiling():
            time.sleep(0.04)
        hidden = self.first(images)
        pause()
        return self.last(hidden).flatten(1)


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
