"""The optimizer's work divided among the ranks, within the compiled graph.

This is ZeRO's first stage (https://arxiv.org/abs/1910.02054): a rank averages the gradients of its share of the
parameters, updates that share, and gathers those of the others in the next forward. What autocast casts anyway is
gathered in the short type, so fewer bytes are moved than by an all-reduce.
"""

from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives
from torch.optim import Optimizer

from trainkit.compiler.in_graph import allow_in_graph
from trainkit.config.schema import DdpConfig
from trainkit.distributed.buckets import Bucket, Layout, gather_shares, lay_out, make_bucket
from trainkit.distributed.replicas import compute_with, group_of_all, make_buckets
from trainkit.distributed.sharded_state import own_state, whole_state

CAST_BY_AUTOCAST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class OptimizerShards:
    """Shares of a module's parameters, of which the optimizer of a rank has its own.

    The module's `forward` gathers all of them. Its parameters keep their names; outside of a forward that records
    gradients those of other ranks are out of date, until `gather_parameters` is called. `state_dict` calls it, of the
    module and of all around it, and the optimizer's `state_dict` gathers too, and is that of an optimizer of all
    parameters: all ranks must call them.
    """

    def __init__(self, module: nn.Module, ddp: DdpConfig, autocast_dtype: torch.dtype | None):
        self._module, self._ddp, self._autocast_dtype = module, ddp, autocast_dtype
        self._groups: list[list[nn.Parameter]] = []  # of the optimizer
        self._buckets: list[list[Bucket]] = []  # by group
        self._buckets_in_order: list[Bucket] = []  # of the module's parameters
        allow_in_graph(gathered)
        compute_with(module, self._gathered)
        module.register_state_dict_pre_hook(lambda *_: self.gather_parameters())

    def divide(self, optimizer: Optimizer) -> None:
        """Give the optimizer this rank's shares in place of the parameters, which are on the device."""
        if not self._buckets:
            self._groups = [list(group["params"]) for group in optimizer.param_groups]
            self._buckets = [self._make_buckets(parameters) for parameters in self._groups]
            buckets_of: dict[nn.Parameter, Bucket] = {}
            for bucket in chain.from_iterable(self._buckets):
                buckets_of |= dict.fromkeys(bucket.parameters, bucket)
            in_order = [buckets_of[parameter] for parameter in self._module.parameters() if parameter in buckets_of]
            self._buckets_in_order = list({id(bucket): bucket for bucket in in_order}.values())
        for bucket in self._buckets_in_order:
            bucket.hold_parameters()
        for group, buckets in zip(optimizer.param_groups, self._buckets, strict=True):
            group["params"] = [bucket.share for bucket in buckets]
        optimizer.register_state_dict_post_hook(lambda _, state: whole_state(state, self._groups, self._buckets))
        optimizer.register_load_state_dict_pre_hook(lambda _, state: own_state(state, self._groups, self._buckets))

    @torch.no_grad()
    def gather_parameters(self) -> None:
        """Bring all parameters up to date. All ranks call it."""
        for bucket in self._buckets_in_order:
            bucket.whole.copy_(gather_shares(bucket.share))

    def gather_gradients(self) -> None:
        """Give each parameter its gradient, the mean over the ranks. All ranks call it."""
        for bucket in self._buckets_in_order:
            assert bucket.share.grad is not None
            parts = bucket.layout.split(gather_shares(bucket.share.grad))
            for parameter, gradient in zip(bucket.parameters, parts, strict=True):
                parameter.grad = gradient

    def norm_of_all(self, norm: Tensor) -> Tensor:
        """The norm of all ranks' gradients, from that of this rank's. All ranks call it."""
        square = norm.square()
        dist.all_reduce(square)
        return square.sqrt()

    def _gathered(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for bucket in self._buckets_in_order:
            own = [parameters[name] for name in bucket.names]
            parts = gathered(*group_of_all(), bucket.dtype, self._ddp.compression, bucket.share, *own)
            tensors.update(zip(bucket.names, parts, strict=True))
        return tensors

    def _make_buckets(self, group: list[nn.Parameter]) -> list[Bucket]:
        in_group = set(group)
        parameters_by_name = {name: value for name, value in self._module.named_parameters() if value in in_group}
        cast = _cast_by_autocast(self._module) if self._autocast_dtype is not None else set()
        buckets = []
        for is_cast in (True, False):
            cast_alike = [
                (name, parameter) for name, parameter in parameters_by_name.items() if (parameter in cast) == is_cast
            ]
            for names in make_buckets(cast_alike, self._ddp.bucket_cap_mb * 2**20):
                parameters = [parameters_by_name[name] for name in names]
                dtype = self._autocast_dtype if is_cast else None
                buckets.append(make_bucket(names, parameters, dtype or parameters[0].dtype))
        return buckets


def _cast_by_autocast(module: nn.Module) -> set[nn.Parameter]:
    """The parameters that autocast casts wherever the module has them."""
    cast: set[nn.Parameter] = set()
    uncast: set[nn.Parameter] = set()
    for owner in module.modules():
        owned = cast if type(owner) in CAST_BY_AUTOCAST else uncast
        owned.update(owner.parameters(recurse=False))
    return cast - uncast


def gathered(
    group_name: str, group_size: int, dtype: torch.dtype, compression: str, share: Tensor, *parameters: Tensor
) -> tuple[Tensor, ...]:
    """The parameters of a bucket, in a dtype, from all ranks' shares. Of `parameters` only the shapes are read."""
    assert group_of_all() == (group_name, group_size)
    parts = GatherParameters.apply(share, lay_out(parameters, group_size), dtype, compression)  # type: ignore[no-untyped-call]
    return tuple(parts)


class GatherParameters(torch.autograd.Function):
    """The parameters of a bucket from all ranks' shares, in a dtype; backward averages their gradients over the ranks,
    and gives each rank those of its share."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, layout: Layout, dtype: torch.dtype, compression: str) -> tuple[Tensor, ...]:
        ctx.layout, ctx.dtype, ctx.compression = layout, share.dtype, compression
        group = dist.group.WORLD
        assert group is not None
        whole = collectives.all_gather_tensor(share.to(dtype), 0, group)
        # Inductor drops the copies. Views would lose this function's backward where they leave a graph, at a break.
        return tuple(part.clone() for part in layout.split(whole))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        group = dist.group.WORLD
        assert group is not None
        whole = ctx.layout.join([gradient.to(ctx.dtype) for gradient in gradients]) / group.size()
        if ctx.compression == "bf16":
            whole = whole.bfloat16()
        return collectives.reduce_scatter_tensor(whole, "sum", 0, group).to(ctx.dtype), None, None, None
