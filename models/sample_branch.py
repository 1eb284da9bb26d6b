"""Control flow: a branch in Python for each sample, and torch.where with a condition for each."""

import torch
from torch import Tensor, nn


class SampleBranch(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    The activation of a sample depends on the mean of its own hidden values. rewritten=False: a loop over the samples
    with `if mean > 0`; torch.compile leaves the function to Python, and each sample waits for the device. True: both
    activations of all samples are computed and torch.where takes one of each; one graph, same numbers.
    """

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 512, rewritten: bool = True):
        super().__init__()
        self.rewritten = rewritten
        self.fc1 = nn.Linear(channels * image_size**2, width)
        self.fc2 = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.fc1(images.flatten(1))  # [B, width]
        x = self.at_once(x) if self.rewritten else self.one_by_one(x)
        return self.fc2(x)  # [B, num_classes]

    def one_by_one(self, x: Tensor) -> Tensor:
        samples = []
        for sample in x:
            if sample.mean() > 0:
                samples.append(sample.relu())
            else:
                samples.append(sample.tanh())
        return torch.stack(samples)

    def at_once(self, x: Tensor) -> Tensor:
        return torch.where(x.mean(1, keepdim=True) > 0, x.relu(), x.tanh())
