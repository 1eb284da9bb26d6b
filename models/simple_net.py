"""The two-layer network of the torch.compile tutorials: linear, ReLU, linear."""

import torch.nn.functional as F
from torch import Tensor, nn


class SimpleNet(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    The tutorials' sizes are 512 inputs, width=512 and num_classes=10; here the inputs are the pixels.
    """

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 512):
        super().__init__()
        self.fc1 = nn.Linear(channels * image_size**2, width)
        self.fc2 = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.fc1(images.flatten(1)))  # [B, width]
        return self.fc2(x)  # [B, num_classes]
