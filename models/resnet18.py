"""ResNet-18 for small images."""

import torch.nn.functional as F
from torch import Tensor, nn


class ResNet18(nn.Module):
    """Classifies images [B, channels, H, W], H and W from 8 up, into logits [B, num_classes].

    He et al. 2015, https://arxiv.org/abs/1512.03385: eight basic blocks in four stages, here with the stem of the
    paper's CIFAR networks (3x3, stride 1, no pooling). With channels=3, num_classes=1000 and width=64 everything
    but the stem has torchvision's shapes.
    """

    def __init__(self, channels: int, num_classes: int, width: int = 64):
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.stage1 = _stage(width, width, stride=1)
        self.stage2 = _stage(width, 2 * width, stride=2)
        self.stage3 = _stage(2 * width, 4 * width, stride=2)
        self.stage4 = _stage(4 * width, 8 * width, stride=2)
        self.fc = nn.Linear(8 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.bn(self.conv(images)))  # [B, width, H, W]
        x = self.stage1(x)  # [B, width, H, W]
        x = self.stage2(x)  # [B, 2 width, H/2, W/2]
        x = self.stage3(x)  # [B, 4 width, H/4, W/4]
        x = self.stage4(x)  # [B, 8 width, H/8, W/8]
        return self.fc(x.mean((2, 3)))  # [B, num_classes]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut: [B, width_in, H, W] -> [B, width_out, H/stride, W/stride]."""

    def __init__(self, width_in: int, width_out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width_out)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or width_in != width_out:  # the paper's option B: project only where the shape changes
            conv = nn.Conv2d(width_in, width_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(width_out))

    def forward(self, x: Tensor) -> Tensor:
        residual = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(residual + self.shortcut(x))


def _stage(width_in: int, width_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(width_in, width_out, stride), BasicBlock(width_out, width_out, 1))
