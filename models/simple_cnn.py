"""A two-layer convolutional network: the smallest thing that has convolutions, BatchNorm and a classifier."""

import torch.nn.functional as F
from torch import Tensor, nn


class SimpleCNN(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    Two stages of conv-BatchNorm-ReLU-maxpool, then one linear layer over all that is left of the image.
    ValueError if the two poolings would leave nothing (image_size < 4).
    Initialisation: He et al. 2015, https://arxiv.org/abs/1502.01852.
    """

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 32):
        super().__init__()
        if image_size < 4:
            raise ValueError(f"image_size={image_size} is too small to be halved twice; at least 4")
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.fc = nn.Linear(2 * width * (image_size // 4) ** 2, num_classes)
        for conv in (self.conv1, self.conv2):
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(images))), 2)  # [B, width, S/2, S/2]
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)  # [B, 2 width, S/4, S/4]
        return self.fc(x.flatten(1))  # [B, num_classes]
