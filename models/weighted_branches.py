"""Control flow: branches in Python by a prediction, and both of them, weighted by it."""

import torch.nn.functional as F
from torch import Tensor, nn


class WeightedBranches(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    A prediction from 0 to 1 for the batch weights a wide branch against a narrow one. rewritten=False: `if` leaves out
    the branch whose weight is 0, which breaks the graph. True: both are always computed; one graph, same numbers.
    """

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 512, rewritten: bool = True):
        super().__init__()
        self.rewritten = rewritten
        pixels = channels * image_size**2
        self.predict = nn.Linear(pixels, 1)
        self.wide = nn.Sequential(nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, num_classes))
        self.narrow = nn.Linear(pixels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = images.flatten(1)
        weight = F.hardsigmoid(self.predict(x).mean())  # [], 0 below -3 and 1 above 3
        if self.rewritten:
            return weight * self.wide(x) + (1 - weight) * self.narrow(x)  # [B, num_classes]
        if weight == 1:
            return self.wide(x)
        if weight == 0:
            return self.narrow(x)
        return weight * self.wide(x) + (1 - weight) * self.narrow(x)
