"""Replicas whose gradients are averaged within the compiled graph.

The idea is that of SimpleFSDP's replicate mode (https://arxiv.org/abs/2411.00284): all-reduces are operations of the
graph, so inductor orders them among the others, and CUDA graphs record them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives

from trainkit.compiler.private_names import require
from trainkit.config.schema import DdpConfig


class CompiledReplicas(DDPStrategy):
    """Starts all ranks from rank 0's parameters and buffers, as DDP does. `average_gradients` does the rest."""

    def configure_ddp(self) -> None:
        assert self.model is not None
        for tensor in self.model.state_dict().values():
            dist.broadcast(tensor, src=0)


@dataclass(frozen=True)
class Member:
    """A parameter of a bucket, by name, and its dimensions from the outermost to the innermost in memory."""

    name: str
    dims: list[int]

    def flat(self, tensor: Tensor) -> Tensor:
        return tensor.permute(self.dims)

    def shaped(self, tensor: Tensor) -> Tensor:
        inverse = sorted(range(len(self.dims)), key=self.dims.__getitem__)
        return tensor.permute(inverse)


def average_gradients(module: nn.Module, ddp: DdpConfig) -> None:
    """Average the gradients of a module over all ranks, in each backward of what its `forward` returns.

    `forward` computes with copies of the parameters. Their gradients are averaged in buckets, one all-reduce each, of
    `ddp.bucket_cap_mb`, the last parameters first. The module's parameters, buffers and their names stay. A parameter
    that the outputs do not depend on gets a gradient of zeros, which DDP refuses, or leaves None. Buffers are those of
    the rank.
    """
    buckets = list(make_buckets(module.named_parameters(), ddp.bucket_cap_mb * 2**20))

    def averaged_copies() -> dict[str, Tensor]:
        parameters = dict(module.named_parameters())
        copies = {}
        # Autograd runs backward first what forward ran last: so the bucket of the last parameters is averaged first.
        for bucket in reversed(buckets):
            tensors = [member.flat(parameters[member.name]) for member in bucket]
            averaged = AverageGradients.apply(ddp.compression, *tensors)  # type: ignore[no-untyped-call]
            for member, copied in zip(bucket, averaged, strict=True):
                copies[member.name] = member.shaped(copied)
        return copies

    compute_with(module, averaged_copies)


def compute_with(module: nn.Module, make_tensors: Callable[[], dict[str, Tensor]]) -> None:
    """Let the module's `forward` compute with these tensors in place of the parameters of the same names, wherever
    gradients are recorded."""
    forward = module.forward
    replaced_parameters = require("_reparametrize_module")

    def forward_with_tensors(*inputs: Any, **keywords: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **keywords)
        with replaced_parameters(module, make_tensors(), tie_weights=True):
            return forward(*inputs, **keywords)

    module.forward = forward_with_tensors


def make_buckets(named: Iterable[tuple[str, nn.Parameter]], cap_bytes: int) -> Iterator[list[Member]]:
    """The trained parameters in buckets of one dtype and at most `cap_bytes`, or of one parameter; the last first."""
    bucket: list[Member] = []
    num_bytes, dtype = 0, None
    for name, parameter in reversed(list(named)):
        if not parameter.requires_grad:
            continue
        if bucket and (parameter.dtype != dtype or num_bytes + parameter.nbytes > cap_bytes):
            yield bucket
            bucket, num_bytes = [], 0
        bucket.append(Member(name, sorted(range(parameter.ndim), key=parameter.stride, reverse=True)))
        num_bytes, dtype = num_bytes + parameter.nbytes, parameter.dtype
    if bucket:
        yield bucket


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
