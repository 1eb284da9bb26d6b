"""Replicas whose gradients are averaged within the compiled graph.

The idea is that of SimpleFSDP's replicate mode (https://arxiv.org/abs/2411.00284): all-reduces are operations of the
graph, so inductor orders them among the others, and CUDA graphs record them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives

from trainkit.compiler.in_graph import allow_in_graph
from trainkit.config.schema import DdpConfig


class CompiledReplicas(DDPStrategy):
    """Starts all ranks from rank 0's parameters and buffers, as DDP does. `average_gradients` does the rest."""

    def configure_ddp(self) -> None:
        assert self.model is not None
        for tensor in self.model.state_dict().values():
            dist.broadcast(tensor, src=0)


def average_gradients(module: nn.Module, ddp: DdpConfig) -> None:
    """Average the gradients of a module over all ranks, in each backward of what its `forward` returns.

    `forward` computes with copies of the parameters. Their gradients are averaged in buckets, one all-reduce each, of
    `ddp.bucket_cap_mb`, the last parameters first. The module's parameters, buffers and their names stay. A parameter
    that the outputs do not depend on gets a gradient of zeros, which DDP refuses, or leaves None. Buffers are those of
    the rank.
    """
    buckets = list(make_buckets(module.named_parameters(), ddp.bucket_cap_mb * 2**20))
    allow_in_graph(averaged_copies)

    def copies_of_all(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        copies: dict[str, Tensor] = {}
        # Autograd runs backward first what forward ran last: so the bucket of the last parameters is averaged first.
        for names in reversed(buckets):
            copied = averaged_copies(*group_of_all(), ddp.compression, *[parameters[name] for name in names])
            copies.update(zip(names, copied, strict=True))
        return copies

    compute_with(module, copies_of_all)


def compute_with(module: nn.Module, make_tensors: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    """Let the module's `forward` compute with tensors in place of its parameters, by name, wherever gradients are
    recorded. They are made from the parameters, in each forward."""
    forward = module.forward
    places = find_places(module)

    def put(tensors: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            for owner, attribute in places[name]:
                owner._parameters[attribute] = tensor  # type: ignore[assignment]

    def forward_with_tensors(*inputs: Any, **keywords: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **keywords)
        parameters = {name: getattr(*places_of_one[0]) for name, places_of_one in places.items()}
        tensors = make_tensors(parameters)
        put(tensors)
        try:
            return forward(*inputs, **keywords)
        finally:
            put({name: parameters[name] for name in tensors})

    module.forward = forward_with_tensors


def find_places(module: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    """Which modules have each parameter, by its name, and as what attribute. Tied ones are in several places."""
    places: dict[str, list[tuple[nn.Module, str]]] = {}
    names = {}
    for name, parameter in module.named_parameters():
        names[parameter], places[name] = name, []
    for owner in module.modules():
        for attribute, parameter in owner.named_parameters(recurse=False, remove_duplicate=False):
            places[names[parameter]].append((owner, attribute))
    return places


def make_buckets(named: Iterable[tuple[str, nn.Parameter]], cap_bytes: int) -> Iterator[list[str]]:
    """The names of the trained parameters in buckets of one dtype and at most `cap_bytes`, or of one parameter; the
    last first."""
    bucket: list[str] = []
    num_bytes, dtype = 0, None
    for name, parameter in reversed(list(named)):
        if not parameter.requires_grad:
            continue
        if bucket and (parameter.dtype != dtype or num_bytes + parameter.nbytes > cap_bytes):
            yield bucket
            bucket, num_bytes = [], 0
        bucket.append(name)
        num_bytes, dtype = num_bytes + parameter.nbytes, parameter.dtype
    if bucket:
        yield bucket


def group_of_all() -> tuple[str, int]:
    """The name and the size of the group of all ranks. Each compiled graph is for one such group."""
    group = dist.group.WORLD
    assert group is not None
    return group.group_name, group.size()


def dims_in_memory(tensor: Tensor) -> list[int]:
    """A tensor's dimensions from the outermost to the innermost in memory."""
    return sorted(range(tensor.ndim), key=tensor.stride, reverse=True)


def inverse(dims: list[int]) -> list[int]:
    """The dimensions that undo a `permute(dims)`."""
    return sorted(range(len(dims)), key=dims.__getitem__)


def averaged_copies(group_name: str, group_size: int, compression: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Copies of tensors, whose gradients are averaged over the group of all ranks in one all-reduce."""
    assert group_of_all() == (group_name, group_size)
    dims = [dims_in_memory(tensor) for tensor in tensors]
    flat = [tensor.permute(order) for tensor, order in zip(tensors, dims, strict=True)]
    copies = AverageGradients.apply(compression, *flat)  # type: ignore[no-untyped-call]
    return tuple(copy.permute(inverse(order)) for copy, order in zip(copies, dims, strict=True))


class AverageGradients(torch.autograd.Function):
    """Copies of tensors; backward averages their gradients over all ranks in one all-reduce."""

    @staticmethod
    def forward(ctx: Any, compression: str, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.compression = compression
        # Inductor drops the copies. Aliases would lose this function's backward where they leave a graph, at a break:
        # AOTAutograd returns them as plain views of the graph's inputs.
        return tuple(tensor.clone() for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        bucket = torch.cat([gradient.flatten() for gradient in gradients])
        dtype = bucket.dtype
        if ctx.compression == "bf16":
            bucket = bucket.bfloat16()
        group = dist.group.WORLD
        assert group is not None
        bucket = collectives.all_reduce(bucket / group.size(), "sum", group).to(dtype)
        averaged = []
        for gradient, flat in zip(gradients, bucket.split([gradient.numel() for gradient in gradients]), strict=True):
            averaged.append(flat.view(gradient.shape))
        return None, *averaged
