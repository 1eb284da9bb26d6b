"""A convolutional network of bottleneck blocks for large images: parallel kernels, groups, squeeze-and-excite."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KERNELS = (3, 5, 7, 1)  # of a block's parallel convolutions
REDUCTION = 16  # of the channels, within squeeze-and-excite


class BottleneckNet(nn.Module):
    """Classifies images [B, channels, H, W] of any H and W into logits [B, num_classes].

    The network with which a tutorial of torch.compile compared its modes, on [32, 3, 224, 224]. Stem, four blocks that
    double the width, a dilated context, mean over the pixels, two linear layers. Raises ValueError if 16, or 4 groups,
    does not divide width.
    """

    def __init__(self, channels: int, num_classes: int, width: int = 64, groups: int = 4, dropout: float = 0.5):
        super().__init__()
        if width % 16 or width % groups:
            raise ValueError(f"width={width} does not divide into 16, or into groups={groups}")
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        widths = [width, 2 * width, 4 * width, 8 * width, 16 * width]
        self.blocks = nn.ModuleList(Block(width_in, width_out, groups) for width_in, width_out in pairwise(widths))
        self.context = nn.Sequential(
            nn.Conv2d(16 * width, 8 * width, 1),
            nn.ReLU(),
            nn.Conv2d(8 * width, 8 * width, 3, padding=2, dilation=2),
            nn.ReLU(),
        )
        self.fc1 = nn.Linear(8 * width, 4 * width)
        self.dropout = nn.Dropout(dropout)
        self.fc2 = nn.Linear(4 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)  # [B, width, H/4, W/4]
        for i, block in enumerate(self.blocks):
            if i > 0:
                x = F.max_pool2d(x, 2, ceil_mode=True)  # a single pixel stays
            x = block(x)
        x = self.context(x).mean((2, 3))  # [B, 8 width], from [B, 16 width, H/32, W/32]
        return self.fc2(self.dropout(F.relu(self.fc1(x))))  # [B, num_classes]


class Block(nn.Module):
    """Bottleneck, parallel kernels, grouped convolution, gate, skip: [B, width_in, H, W] -> [B, width_out, H, W]."""

    def __init__(self, width_in: int, width_out: int, groups: int):
        super().__init__()
        narrow = width_out // 4
        self.bottleneck = nn.Sequential(nn.Conv2d(width_in, narrow, 1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU())
        self.branches = nn.ModuleList(
            nn.Conv2d(narrow, narrow // len(KERNELS), kernel, padding=kernel // 2) for kernel in KERNELS
        )
        self.grouped = nn.Conv2d(narrow, narrow, 3, padding=1, groups=groups)
        self.gate = SqueezeExcite(narrow)
        self.widen = nn.Sequential(nn.Conv2d(narrow, width_out, 1, bias=False), nn.BatchNorm2d(width_out))
        self.skip = nn.Sequential(nn.Conv2d(width_in, width_out, 1, bias=False), nn.BatchNorm2d(width_out))

    def forward(self, x: Tensor) -> Tensor:
        narrow = self.bottleneck(x)  # [B, width_out/4, H, W]
        joined = torch.cat([branch(narrow) for branch in self.branches], 1)  # [B, width_out/4, H, W]
        return F.relu(self.widen(self.gate(self.grouped(joined))) + self.skip(x))  # [B, width_out, H, W]


class SqueezeExcite(nn.Module):
    """Scales each channel of x [B, width, H, W] by a number in (0, 1) that the means of all channels give.

    Hu et al. 2017, https://arxiv.org/abs/1709.01507, with their reduction of 16.
    """

    def __init__(self, width: int):
        super().__init__()
        squeezed = max(width // REDUCTION, 1)
        self.squeeze = nn.Linear(width, squeezed)
        self.excite = nn.Linear(squeezed, width)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.excite(F.relu(self.squeeze(x.mean((2, 3))))).sigmoid()  # [B, width]
        return x * scale[:, :, None, None]
