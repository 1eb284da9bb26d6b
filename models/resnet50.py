"""ResNet-50 v1.5, as published for ImageNet."""

import torch.nn.functional as F
from torch import Tensor, nn


class ResNet50(nn.Module):
    """Classifies images [B, channels, H, W], H and W from 1 up, into logits [B, num_classes].

    Computes the same as torchvision's resnet50 and transformers' ResNetForImageClassification: sixteen bottleneck
    blocks in four stages (He et al. 2015, https://arxiv.org/abs/1512.03385), their stride in the 3x3 convolution
    (v1.5, Goyal et al. 2017, https://arxiv.org/abs/1706.02677), not in the first 1x1. Weights start as torchvision's.
    Images of up to 32x32 end as 1x1, so that training needs batches of at least 2: BatchNorm needs several values.
    """

    def __init__(self, channels: int, num_classes: int, width: int = 64):
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stage1 = _bottleneck_stage(width, width, stride=1, depth=3)
        self.stage2 = _bottleneck_stage(4 * width, 2 * width, stride=2, depth=4)
        self.stage3 = _bottleneck_stage(8 * width, 4 * width, stride=2, depth=6)
        self.stage4 = _bottleneck_stage(16 * width, 8 * width, stride=2, depth=3)
        self.fc = nn.Linear(32 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.bn(self.conv(images)))  # [B, width, H/2, W/2]; every half is rounded up
        x = self.pool(x)  # [B, width, H/4, W/4]
        x = self.stage1(x)  # [B, 4 width, H/4, W/4]
        x = self.stage2(x)  # [B, 8 width, H/8, W/8]
        x = self.stage3(x)  # [B, 16 width, H/16, W/16]
        x = self.stage4(x)  # [B, 32 width, H/32, W/32]
        return self.fc(x.mean((2, 3)))  # [B, num_classes]


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut: [B, width_in, H, W] -> [B, 4 width, H/stride, W/stride]."""

    def __init__(self, width_in: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or width_in != 4 * width:  # the paper's option B: project only where the shape changes
            conv = nn.Conv2d(width_in, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        residual = F.relu(self.bn1(self.conv1(x)))  # [B, width, H, W]
        residual = F.relu(self.bn2(self.conv2(residual)))  # [B, width, H/stride, W/stride]
        residual = self.bn3(self.conv3(residual))  # [B, 4 width, H/stride, W/stride]
        return F.relu(residual + self.shortcut(x))


def _bottleneck_stage(width_in: int, width: int, stride: int, depth: int) -> nn.Sequential:
    blocks = [Bottleneck(width_in, width, stride)]
    blocks += [Bottleneck(4 * width, width, stride=1) for _ in range(depth - 1)]
    return nn.Sequential(*blocks)
