"""A convolutional network with many kinds of layers: parallel branches, groups, squeeze-and-excite, dilations."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KERNELS = (1, 3, 5, 7)  # of a block's parallel branches
DILATIONS = (1, 2, 4)


class ComplexNet(nn.Module):
    """Classifies images [B, channels, H, W] of any H and W into logits [B, num_classes].

    Stem, four blocks (the second and the fourth halve the image), dilated context, mean over the pixels,
    dropout, linear. Raises ValueError if 4 or groups does not divide width.
    """

    def __init__(self, channels: int, num_classes: int, width: int = 64, groups: int = 4, dropout: float = 0.0):
        super().__init__()
        self.stem = _conv_bn(channels, width, 3)
        self.block1 = Block(width, width, 1, groups)
        self.block2 = Block(width, 2 * width, 2, groups)
        self.block3 = Block(2 * width, 2 * width, 1, groups)
        self.block4 = Block(2 * width, 4 * width, 2, groups)
        self.context = Context(4 * width)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(4 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.stem(images))  # [B, width, H, W]
        x = self.block1(x)  # [B, width, H, W]
        x = self.block2(x)  # [B, 2 width, H/2, W/2]
        x = self.block3(x)  # [B, 2 width, H/2, W/2]
        x = self.block4(x)  # [B, 4 width, H/4, W/4]
        x = self.context(x)  # [B, 4 width, H/4, W/4]
        return self.fc(self.dropout(x.mean((2, 3))))  # [B, num_classes]


class Block(nn.Module):
    """Bottleneck, branches, grouped convolution, gate, skip: [B, width_in, H, W] -> [B, width_out, H/stride, W/stride].

    The branches look at the same narrow input with kernels 1, 3, 5 and 7, as in Szegedy et al. 2014,
    https://arxiv.org/abs/1409.4842; the grouped convolution puts them together and has the stride.
    """

    def __init__(self, width_in: int, width_out: int, stride: int, groups: int):
        super().__init__()
        if width_out % len(KERNELS) or width_out % groups:
            raise ValueError(f"width={width_out} does not divide into {len(KERNELS)} branches and groups={groups}")
        narrow = width_out // len(KERNELS)
        self.bottleneck = _conv_bn(width_in, narrow, 1)
        self.branches = nn.ModuleList(_conv_bn(narrow, narrow, kernel) for kernel in KERNELS)
        self.grouped = _conv_bn(width_out, width_out, 3, stride, groups=groups)
        self.gate = SqueezeExcite(width_out)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or width_in != width_out:
            self.skip = _conv_bn(width_in, width_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        narrow = F.relu(self.bottleneck(x))  # [B, width_out/4, H, W]
        wide = F.relu(torch.cat([branch(narrow) for branch in self.branches], 1))  # [B, width_out, H, W]
        return F.relu(self.gate(self.grouped(wide)) + self.skip(x))  # [B, width_out, H/stride, W/stride]


class SqueezeExcite(nn.Module):
    """Scales each channel of x [B, width, H, W] by a number in (0, 1) that the means of all channels give.

    Hu et al. 2017, https://arxiv.org/abs/1709.01507, with reduction 4.
    """

    def __init__(self, width: int):
        super().__init__()
        self.squeeze = nn.Linear(width, width // 4)
        self.excite = nn.Linear(width // 4, width)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.excite(F.relu(self.squeeze(x.mean((2, 3))))).sigmoid()  # [B, width]
        return x * scale[:, :, None, None]


class Context(nn.Module):
    """3x3 convolutions with dilations 1, 2 and 4, each added to its input: [B, width, H, W] -> same.

    A pixel of the result sees 15x15 of x, as in Yu and Koltun 2015, https://arxiv.org/abs/1511.07122.
    """

    def __init__(self, width: int):
        super().__init__()
        self.layers = nn.ModuleList(_conv_bn(width, width, 3, dilation=dilation) for dilation in DILATIONS)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.relu(layer(x))  # [B, width, H, W]
        return x


def _conv_bn(
    width_in: int, width_out: int, kernel: int, stride: int = 1, groups: int = 1, dilation: int = 1
) -> nn.Sequential:
    """Convolution and BatchNorm that change height and width by the stride alone; the kernel is odd."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(width_in, width_out, kernel, stride, padding, dilation, groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width_out))
