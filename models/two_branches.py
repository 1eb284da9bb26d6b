"""Two equal branches over the same images, which may run side by side in two CUDA streams."""

from functools import cache

import torch
from torch import Tensor, nn


class TwoBranches(nn.Module):
    """Classifies images [B, channels, H, W] of any H and W into logits [B, num_classes].

    `first` and `second` have the same layers and weights of their own; a linear layer takes the features of both.
    streams=True: on a GPU `second` runs in a CUDA stream of its own, beside `first`. A CPU has no streams and runs one
    after the other. The numbers are the same. With two streams torch.compile breaks the graph around the branches, and
    compiles a branch only where it is a part (compile.scope=parts). Only `first` may replay CUDA graphs
    (compile.mode=reduce-overhead), because torch's CUDA graphs share memory as if they never ran at the same time.
    """

    def __init__(self, channels: int, num_classes: int, width: int = 64, depth: int = 4, streams: bool = False):
        super().__init__()
        self.streams = streams
        self.first = Branch(channels, width, depth)
        self.second = Branch(channels, width, depth)
        self.fc = nn.Linear(2 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        if self.streams and images.is_cuda:
            features = self.side_by_side(images)
        else:
            features = [self.first(images), self.second(images)]
        return self.fc(torch.cat(features, 1))  # [B, num_classes]

    # Which operations on streams Dynamo traces depends on torch's version: https://github.com/pytorch/pytorch/pull/178252
    @torch.compiler.disable(reason="two CUDA streams")  # type: ignore[untyped-decorator]
    def side_by_side(self, images: Tensor) -> list[Tensor]:
        current, side = torch.cuda.current_stream(images.device), side_stream(images.device)
        side.wait_stream(current)  # for the images, and not for the first branch, which is launched after it
        first = self.first(images)
        with torch.cuda.stream(side):
            second = self.second(images)
        current.wait_stream(side)
        images.record_stream(side)  # the allocator knows only the stream that a tensor was made in
        second.record_stream(current)
        return [first, second]


class Branch(nn.Module):
    """3x3 convolutions with BatchNorm and ReLU, and the mean over the pixels: [B, channels, H, W] -> [B, width]."""

    def __init__(self, channels: int, width: int, depth: int):
        super().__init__()
        widths = [channels] + (depth - 1) * [width]
        self.layers = nn.Sequential(*[_conv_bn_relu(width_in, width) for width_in in widths])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).mean((2, 3))


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """The second stream of a device. There is one, because the allocator keeps memory for each stream apart."""
    return torch.cuda.Stream(device)


def _conv_bn_relu(width_in: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(width_in, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
