"""A chain of cheap element-wise statements between two linear layers: the gain of fusing them, alone."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

# They take turns, and each is one kernel in eager. `start` is what the chain began with: adding it again keeps a long
# chain from forgetting it, and as a bounded function follows each addition, |x| <= |start| + 1 after any number.
STATEMENTS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda x, start: x.tanh(),
    lambda x, start: x * 0.5,
    lambda x, start: F.gelu(x),
    lambda x, start: x + start,
    lambda x, start: x.sigmoid(),
    lambda x, start: x - 0.5,
    lambda x, start: F.silu(x),
    lambda x, start: x + start,
)


class OpChain(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    Linear, num_ops element-wise statements, linear. In eager every statement is a kernel, compiled they fuse. However
    many there are, they end at most 1 farther from 0 than they start. ValueError for a chain without a statement.
    """

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 512, num_ops: int = 32):
        super().__init__()
        if num_ops < 1:
            raise ValueError(f"num_ops={num_ops} is no chain; at least 1")
        self.num_ops = num_ops
        self.fc1 = nn.Linear(channels * image_size**2, width)
        self.fc2 = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc2(chain(self.fc1(images.flatten(1)), self.num_ops))  # [B, num_classes]


def chain(start: Tensor, num_ops: int) -> Tensor:
    """start after num_ops statements, at most 1 farther from 0, element by element: any shape -> same."""
    x = start
    for i in range(num_ops):
        x = STATEMENTS[i % len(STATEMENTS)](x, start)
    return x
