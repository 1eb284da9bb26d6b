"""Parameters that lie in one tensor, of which each rank has a share."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives

from trainkit.compiler.private_names import require
from trainkit.distributed.replicas import Member

ALIGNMENT = 64  # elements; matrix products are slow on parameters that begin just anywhere


@dataclass(frozen=True)
class Layout:
    """The places of parameters in one flat tensor: their shapes as they lie in memory, and the zeros after each."""

    members: list[Member]
    shapes: list[torch.Size]
    padding: list[int]

    def split(self, whole: Tensor) -> list[Tensor]:
        """The parts of such a tensor, each in the shape of its parameter."""
        sizes = chain.from_iterable(zip([shape.numel() for shape in self.shapes], self.padding, strict=True))
        parts = []
        for member, shape, part in zip(self.members, self.shapes, whole.split(list(sizes))[::2], strict=True):
            parts.append(member.shaped(part.view(shape)))
        return parts

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Such a tensor from its parts."""
        pieces = []
        for member, part, num_zeros in zip(self.members, parts, self.padding, strict=True):
            pieces.append(member.flat(part).flatten())
            if num_zeros > 0:
                pieces.append(part.new_zeros(num_zeros))
        return torch.cat(pieces)


@dataclass(frozen=True)
class Bucket:
    """Parameters whose memory is `whole`, and which are gathered at once, in `dtype`. `share` is this rank's part of
    that memory, which the optimizer updates."""

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


def make_bucket(members: list[Member], parameters: list[nn.Parameter], dtype: torch.dtype) -> Bucket:
    """A bucket of these parameters, which it does not hold yet."""
    group = dist.group.WORLD
    assert group is not None
    flat = [member.flat(parameter.detach()) for member, parameter in zip(members, parameters, strict=True)]
    padding = [-tensor.numel() % ALIGNMENT for tensor in flat]
    num_elements = sum(tensor.numel() for tensor in flat) + sum(padding)
    padding[-1] += -num_elements % (ALIGNMENT * group.size())
    layout = Layout(members, [tensor.shape for tensor in flat], padding)
    whole = layout.join(parameters).detach()
    share = nn.Parameter(own_share(whole))
    require("mark_static_address")(share)  # else a CUDA graph copies it in each step
    return Bucket(parameters, layout, dtype, whole, share)


def own_share(whole: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    group = dist.group.WORLD
    assert group is not None
    return whole.chunk(group.size())[group.rank()]


def gather_shares(share: Tensor) -> Tensor:
    """The tensor of which each rank has a share. All ranks call it."""
    assert dist.group.WORLD is not None
    return collectives.all_gather_tensor(share.detach(), 0, dist.group.WORLD)
