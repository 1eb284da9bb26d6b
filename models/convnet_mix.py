"""A multi-scale convolutional network with several heads, and a branch in Python that torch.compile cannot trace."""

import numpy
import torch
from torch import Tensor, nn

KERNEL_SIZES = (3, 5, 7)  # of the parallel branches


class ConvNetMix(nn.Module):
    """Classifies images [B, channels, H, W], H and W from 2 up, into logits [B, num_classes].

    random_head=False: the mean of the logits of all heads, in one graph. True: on each call the head that
    numpy.random.randint(num_heads) picks, in training and evaluation: torch.compile breaks the graph there and compiles
    the rest again for each head, up to its recompile limit; with fullgraph=True it fails. The other heads get no
    gradient from that call. With rewritten=True torch draws that head, within one graph that computes all heads and
    selects this one.
    Raises ValueError if there is no head.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        width: int = 32,
        num_heads: int = 5,
        random_head: bool = False,
        rewritten: bool = False,
    ):
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads={num_heads} leaves nothing that classifies; at least 1")
        self.random_head, self.rewritten = random_head, rewritten
        self.features = nn.Sequential(
            MultiScale(channels, width),  # [B, 3 width, H, W]
            nn.MaxPool2d(2),  # [B, 3 width, H/2, W/2]
            MultiScale(3 * width, 2 * width),  # [B, 6 width, H/2, W/2]
            nn.AdaptiveAvgPool2d(1),  # [B, 6 width, 1, 1]
            nn.Flatten(),
        )
        self.classifier = nn.ModuleList(nn.Linear(6 * width, num_classes) for _ in range(num_heads))

    def forward(self, images: Tensor) -> Tensor:
        x = self.features(images)  # [B, 6 width]
        if self.random_head and not self.rewritten:
            return self.classifier[numpy.random.randint(len(self.classifier))](x)  # [B, num_classes]
        logits = torch.stack([head(x) for head in self.classifier])  # [num_heads, B, num_classes]
        if self.random_head:
            return logits.index_select(0, torch.randint(len(logits), (1,), device=x.device))[0]  # [B, num_classes]
        return logits.mean(0)  # [B, num_classes]


class MultiScale(nn.Module):
    """Convolutions with kernels 3, 5 and 7 beside each other: [B, width_in, H, W] -> [B, 3 width, H, W]."""

    def __init__(self, width_in: int, width: int):
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Conv2d(width_in, width, kernel, padding=kernel // 2, bias=False) for kernel in KERNEL_SIZES
        )
        self.bn = nn.BatchNorm2d(len(KERNEL_SIZES) * width)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(torch.cat([branch(x) for branch in self.branches], 1)).relu()
