"""Control flow: a counter as an attribute, and as a buffer."""

import torch
from torch import Tensor, nn


class AttributeCounter(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    Calls are counted, in training and evaluation, and warm the hidden values up: they are scaled by n / (n + 1) at
    call n. rewritten=False: the count is a number in Python, which torch.compile compiles anew for, up to its recompile
    limit. True: it is a buffer, part of the state_dict; one graph, same numbers. The buffer is replaced, not changed in
    place: backward would compute the scale again from the changed one, https://github.com/pytorch/pytorch/pull/197039.
    """

    calls: int | Tensor

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 512, rewritten: bool = True):
        super().__init__()
        if rewritten:
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        else:
            self.calls = 0
        self.fc1 = nn.Linear(channels * image_size**2, width)
        self.fc2 = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        self.calls = self.calls + 1
        x = self.fc1(images.flatten(1)).relu()  # [B, width]
        return self.fc2(x * (self.calls / (self.calls + 1)))  # [B, num_classes]
