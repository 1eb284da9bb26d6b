"""A convolutional network in two parts, features of several scales and a classifier, which numpy may pick."""

from itertools import pairwise

import numpy
import torch
from torch import Tensor, nn

KERNELS = (1, 3, 5, 7)  # of a block's parallel convolutions


class MultiScaleNet(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    The network with which a tutorial of torch.compile compared parts and whole, on [32, 3, 64, 64]: three blocks and a
    classifier. With random_classifier it is on each call the one that numpy.random.randint(num_classifiers) picks,
    where torch.compile breaks the graph. Raises ValueError for no classifier, for several of which none is picked, and
    for an image too small to be halved three times.
    """

    def __init__(
        self,
        channels: int,
        image_size: int,
        num_classes: int,
        width: int = 32,
        hidden: int = 512,
        num_classifiers: int = 1,
        random_classifier: bool = False,
        dropout: float = 0.5,
    ):
        super().__init__()
        if num_classifiers < 1 or (num_classifiers > 1 and not random_classifier):
            raise ValueError(f"num_classifiers={num_classifiers}: 1, or more with random_classifier=true")
        if image_size < 8:
            raise ValueError(f"image_size={image_size} is too small to be halved three times; at least 8")
        self.random_classifier = random_classifier
        widths = [channels, width, 2 * width, 4 * width]
        self.features = nn.Sequential(*[Block(width_in, width_out) for width_in, width_out in pairwise(widths)])
        num_features = 4 * width * (image_size // 8) ** 2
        self.classifiers = nn.ModuleList(
            Classifier(num_features, hidden, num_classes, dropout) for _ in range(num_classifiers)
        )

    def forward(self, images: Tensor) -> Tensor:
        x = self.features(images).flatten(1)  # [B, 4 width * image_size/8 * image_size/8]
        if self.random_classifier:
            return self.classifiers[numpy.random.randint(len(self.classifiers))](x)  # [B, num_classes]
        return self.classifiers[0](x)  # [B, num_classes]


class Block(nn.Module):
    """Convolutions with kernels 1, 3, 5 and 7 beside each other, fused: [B, width_in, H, W] -> [B, width, H/2, W/2]."""

    def __init__(self, width_in: int, width: int):
        super().__init__()
        self.branches = nn.ModuleList(_conv_bn_relu(width_in, width, kernel, nn.MaxPool2d(2)) for kernel in KERNELS)
        self.fuse = _conv_bn_relu(len(KERNELS) * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fuse(torch.cat([branch(x) for branch in self.branches], 1))


class Classifier(nn.Module):
    """Dropout, linear, BatchNorm, ReLU, dropout, linear: [B, num_features] -> [B, num_classes]."""

    def __init__(self, num_features: int, hidden: int, num_classes: int, dropout: float):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(num_features, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def _conv_bn_relu(width_in: int, width: int, kernel: int, *following: nn.Module) -> nn.Sequential:
    conv = nn.Conv2d(width_in, width, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(), *following)
