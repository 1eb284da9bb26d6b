"""Control flow: a branch in Python on a tensor's value, and torch.where instead of it."""

import torch
from torch import Tensor, nn


class TensorBranch(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    The activation depends on the mean of all hidden values of the batch. rewritten=False: `if mean > 0`, a
    graph break of torch.compile. True: both are computed and torch.where takes one, in one graph; same numbers.
    """

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 512, rewritten: bool = True):
        super().__init__()
        self.rewritten = rewritten
        self.fc1 = nn.Linear(channels * image_size**2, width)
        self.fc2 = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.fc1(images.flatten(1))  # [B, width]
        if self.rewritten:
            x = torch.where(x.mean() > 0, x.relu(), x.tanh())
        elif x.mean() > 0:
            x = x.relu()
        else:
            x = x.tanh()
        return self.fc2(x)  # [B, num_classes]
