"""A small convolutional network whose hot spots are two functions that can be compiled, or replaced, alone."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def costly_activation(x: Tensor) -> Tensor:
    """x tanh(softplus(x)) + 0.1 sin(x) sigmoid(x) exp(-x^2), element by element: any shape -> same.

    Mish (Misra 2019, https://arxiv.org/abs/1908.08681) and a ripple about 0. Eager runs twelve kernels, each of which
    reads and writes as much as all of x; one fused kernel reads x once and writes the result once.
    """
    gate = F.softplus(x)
    gate = torch.tanh(gate)
    mish = x * gate
    ripple = torch.sin(x)
    ripple = ripple * torch.sigmoid(x)
    ripple = ripple * torch.exp(-x * x)
    return mish + 0.1 * ripple


def channel_spatial_attention(x: Tensor, reduce: Tensor, expand: Tensor, spatial: Tensor) -> Tensor:
    """Scales x [B, C, H, W] by a number in (0, 1) for each channel, then by one for each pixel: -> same shape.

    CBAM, Woo et al. 2018, https://arxiv.org/abs/1807.06521. Channels: reduce [R, C] and expand [C, R] are the layers
    of a network over each channel's mean and over its maximum; the two are added. Pixels: spatial [1, 2, K, K], K odd,
    the paper's 7, is a convolution over the mean and the maximum of the channels.
    """
    pooled = torch.stack([x.mean((2, 3)), x.amax((2, 3))])  # [2, B, C]
    channels = F.linear(F.relu(F.linear(pooled, reduce)), expand).sum(0).sigmoid()  # [B, C]
    x = x * channels[:, :, None, None]
    pooled = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)  # [B, 2, H, W]
    pixels = F.conv2d(pooled, spatial, padding=spatial.shape[-1] // 2).sigmoid()  # [B, 1, H, W]
    return x * pixels


class LocalOptimized(nn.Module):
    """Classifies images [B, channels, H, W], H and W from 4 up, into logits [B, num_classes].

    Its stages look up the two functions above in this module at each call: after
    `local_optimized.costly_activation = torch.compile(costly_activation)` that function alone is compiled.
    ValueError where reduction, of the channels within the attention, does not divide width.
    """

    def __init__(self, channels: int, num_classes: int, width: int = 64, reduction: int = 8):
        super().__init__()
        if width % reduction:
            raise ValueError(f"reduction={reduction} does not divide width={width}")
        self.stage1 = Stage(channels, width, reduction)
        self.stage2 = Stage(width, 2 * width, reduction)
        self.fc = nn.Linear(2 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stage1(images)  # [B, width, H/2, W/2]
        x = self.stage2(x)  # [B, 2 width, H/4, W/4]
        return self.fc(x.mean((2, 3)))  # [B, num_classes]


class Stage(nn.Module):
    """Conv, BatchNorm, activation, attention and pooling: [B, width_in, H, W] -> [B, width_out, H/2, W/2]."""

    def __init__(self, width_in: int, width_out: int, reduction: int):
        super().__init__()
        self.conv = nn.Conv2d(width_in, width_out, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width_out)
        self.reduce = nn.Linear(width_out, width_out // reduction, bias=False)
        self.expand = nn.Linear(width_out // reduction, width_out, bias=False)
        self.spatial = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = costly_activation(self.bn(self.conv(x)))  # [B, width_out, H, W]
        x = channel_spatial_attention(x, self.reduce.weight, self.expand.weight, self.spatial.weight)
        return F.max_pool2d(x, 2)  # [B, width_out, H/2, W/2]
