"""One convolution and a ReLU: the smallest network that shows every stage of torch.compile."""

import torch.nn.functional as F
from torch import Tensor, nn


class ConvReLU(nn.Module):
    """Classifies images [B, channels, H, W] into logits [B, num_classes]: convolution, ReLU, mean of each channel."""

    def __init__(self, channels: int, num_classes: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, num_classes, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.conv(images))  # [B, num_classes, H, W]
        return x.mean((2, 3))
