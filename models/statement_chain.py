"""A function of n cheap element-wise statements that ends in a sum, without any layer: what calls cost the host."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# They take turns; the bounded ones keep any number of them finite. A statement is a kernel in eager, the seventh two.
STATEMENTS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x + 1.0,
    torch.sin,
    lambda x: x * 2.0,
    torch.cos,
    F.relu,
    lambda x: x - 0.5,
    lambda x: torch.exp(x * 0.5),
    torch.sigmoid,
    torch.tanh,
    torch.square,
    lambda x: x / 2.0,
    torch.abs,
    torch.sqrt,
    torch.neg,
    torch.exp,
    torch.log1p,
    F.silu,
    lambda x: x.clamp(-1.0, 1.0),
    F.gelu,
    F.softplus,
)


class StatementChain(nn.Module):
    """Maps a tensor of any shape to the sum, a scalar, of its elements after num_ops statements. It has no parameters.

    The function in which a tutorial of torch.compile looked for the crossing point, on [8, 16]: here the images of
    data.channels=16 data.image_size=1. ValueError for a chain without a statement.
    """

    def __init__(self, num_ops: int = 10):
        super().__init__()
        if num_ops < 1:
            raise ValueError(f"num_ops={num_ops} is no chain; at least 1")
        self.num_ops = num_ops

    def forward(self, x: Tensor) -> Tensor:
        for i in range(self.num_ops):
            x = STATEMENTS[i % len(STATEMENTS)](x)
        return x.sum()
