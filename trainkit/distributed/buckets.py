"""Parameters that lie in one tensor, of which each rank has a share."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives

from trainkit.compiler.private_names import require
from trainkit.distributed.replicas import dims_in_memory, group_of_all, inverse

ALIGNMENT = 64  # elements; matrix products are slow on parameters that begin just anywhere


@dataclass(frozen=True)
class Layout:
    """The places of parameters in one flat tensor: the order of dimensions in which each lies there, its shape in this
    order, and the zeros after it."""

    dims: list[list[int]]
    shapes: list[torch.Size]
    padding: list[int]

    def split(self, whole: Tensor) -> list[Tensor]:
        """The parts of such a tensor, each in the shape of its parameter."""
        sizes = chain.from_iterable(zip([shape.numel() for shape in self.shapes], self.padding, strict=True))
        parts = []
        for dims, shape, part in zip(self.dims, self.shapes, whole.split(list(sizes))[::2], strict=True):
            parts.append(part.view(shape).permute(inverse(dims)))
        return parts

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Such a tensor from its parts."""
        pieces = []
        for dims, part, num_zeros in zip(self.dims, parts, self.padding, strict=True):
            pieces.append(part.permute(dims).flatten())
            if num_zeros > 0:
                pieces.append(part.new_zeros(num_zeros))
        return torch.cat(pieces)


def lay_out(parameters: Sequence[Tensor], group_size: int) -> Layout:
    """The layout of parameters in a tensor that a group of so many ranks can share evenly."""
    dims, shapes, padding = [], [], []
    for parameter in parameters:
        dims.append(dims_in_memory(parameter))
        shapes.append(torch.Size([parameter.shape[dim] for dim in dims[-1]]))
        padding.append(-parameter.numel() % ALIGNMENT)
    num_elements = sum(parameter.numel() for parameter in parameters) + sum(padding)
    padding[-1] += -num_elements % (ALIGNMENT * group_size)
    return Layout(dims, shapes, padding)


@dataclass(frozen=True)
class Bucket:
    """Parameters, and their names, whose memory is `whole`, and which are gathered at once, in `dtype`. `share` is this
    rank's part of that memory, which the optimizer updates."""

    names: list[str]
    parameters: list[nn.Parameter]
    layout: Layout
    dtype: torch.dtype
    whole: Tensor
    share: nn.Parameter

    @torch.no_grad()
    def hold_parameters(self) -> None:
        """Move the parameters' memory to `whole`. Lightning moves them away from it, to the CPU, after each fit."""
        self.whole.copy_(self.layout.join(self.parameters))
        for parameter, part in zip(self.parameters, self.layout.split(self.whole), strict=True):
            parameter.data = part


def make_bucket(names: list[str], parameters: list[nn.Parameter], dtype: torch.dtype) -> Bucket:
    """A bucket of these parameters, which it does not hold yet."""
    _, group_size = group_of_all()
    layout = lay_out(parameters, group_size)
    whole = layout.join(parameters).detach()
    share = nn.Parameter(own_share(whole))
    require("mark_static_address")(share)  # else a CUDA graph copies it in each step
    return Bucket(names, parameters, layout, dtype, whole, share)


def own_share(whole: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    group = dist.group.WORLD
    assert group is not None
    return whole.chunk(group.size())[group.rank()]


def gather_shares(share: Tensor) -> Tensor:
    """The tensor of which each rank has a share. All ranks call it."""
    assert dist.group.WORLD is not None
    return collectives.all_gather_tensor(share.detach(), 0, dist.group.WORLD)
