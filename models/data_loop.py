"""Control flow: a loop whose count the data decide, and a masked loop of fixed length in its place."""

import torch
from torch import Tensor, nn


class DataLoop(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    One layer refines the hidden values again and again: 1 to max_steps times, the more the larger they are on average
    over the batch. rewritten=False: the count is read from the tensor (`.item()`), which breaks the graph. True: all
    max_steps are computed, and steps beyond the count change nothing; one graph, same numbers. ValueError for
    max_steps below 1.
    """

    def __init__(
        self,
        channels: int,
        image_size: int,
        num_classes: int,
        width: int = 256,
        max_steps: int = 4,
        rewritten: bool = True,
    ):
        super().__init__()
        if max_steps < 1:
            raise ValueError(f"max_steps={max_steps} refines nothing; at least 1")
        self.max_steps, self.rewritten = max_steps, rewritten
        self.fc1 = nn.Linear(channels * image_size**2, width)
        self.refine = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.fc1(images.flatten(1)).tanh()  # [B, width]
        count = (x.abs().mean() * self.max_steps).long().clamp(1, self.max_steps)  # []
        if self.rewritten:
            for step in range(self.max_steps):
                x = torch.where(step < count, self.step(x), x)
        else:
            for _ in range(count.item()):
                x = self.step(x)
        return self.fc2(x)  # [B, num_classes]

    def step(self, x: Tensor) -> Tensor:
        return x + self.refine(x).tanh()
