"""A plain convolutional network with two costly functions that can be compiled alone."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def costly_activation(x: Tensor) -> Tensor:
    """sin(x) + x^2 tanh(x) + exp(-|x|) + sigmoid(x) log(max(|x|, 1e-6)), element by element: any shape -> same."""
    result = torch.sin(x)
    result = result + x.square() * torch.tanh(x)
    result = result + torch.exp(-x.abs())
    return result + torch.sigmoid(x) * torch.log(x.abs().clamp(min=1e-6))


def channel_spatial_attention(x: Tensor) -> Tensor:
    """Scales x [B, C, H, W] by a number in (0, 1) for each channel, then by one for each pixel: -> same shape.

    Without weights: each number is the sigmoid of the mean plus the maximum over what it scales.
    """
    x = x * (x.mean((2, 3), keepdim=True) + x.amax((2, 3), keepdim=True)).sigmoid()  # by [B, C, 1, 1]
    return x * (x.mean(1, keepdim=True) + x.amax(1, keepdim=True)).sigmoid()  # by [B, 1, H, W]


class CostlyFunctions(nn.Module):
    """Classifies images [B, channels, H, W] of any H and W into logits [B, num_classes].

    The network with which a tutorial of torch.compile compared functions and whole, on [16, 3, 224, 224]. Four 3x3
    convolutions with BatchNorm and, in this order, ReLU, the costly activation, the attention, ReLU. It looks up the
    two functions in this module at each call, so that each can be compiled alone.
    """

    def __init__(self, channels: int, num_classes: int, width: int = 64):
        super().__init__()
        self.stage1 = _conv_bn(channels, width)
        self.stage2 = _conv_bn(width, 2 * width)
        self.stage3 = _conv_bn(2 * width, 2 * width)
        self.stage4 = _conv_bn(2 * width, 4 * width)
        self.fc = nn.Linear(4 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.stage1(images))  # [B, width, H, W]
        x = costly_activation(self.stage2(x))  # [B, 2 width, H, W]
        x = channel_spatial_attention(self.stage3(x))  # [B, 2 width, H, W]
        x = F.relu(self.stage4(x))  # [B, 4 width, H, W]
        return self.fc(x.mean((2, 3)))  # [B, num_classes]


def _conv_bn(width_in: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(width_in, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
