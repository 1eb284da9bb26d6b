"""The Lightning strategies with which the ranks train together."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from lightning.pytorch.strategies import Strategy
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.distributed.collectives import COLLECTIVE_TIMEOUT
from trainkit.distributed.ddp import TrainingDDP
from trainkit.distributed.replicas import CompiledReplicas
from trainkit.distributed.shards import ShardedBlocks


def build_strategy(config: RunConfig, world_size: int) -> Strategy | str:
    """The requested strategy, by default DDP if there are several processes; "auto" is Lightning's for one device. One
    process has nothing to average: `compiled` is "auto" there, and `ddp` wraps the network all the same.

    Raises ConfigError if one process cannot train with it.
    """
    requested = config.ddp.strategy
    if requested == "compiled" and world_size > 1:
        return CompiledReplicas(timeout=COLLECTIVE_TIMEOUT)
    if requested == "fsdp2":
        if world_size == 1:
            raise ConfigError(
                "ddp.strategy = fsdp2: shards over several processes, and this run has one; use torchrun or "
                "trainer.devices, or ddp.strategy=auto"
            )
        return ShardedBlocks(world_size)
    if requested == "ddp" or world_size > 1:
        return TrainingDDP(config.ddp)
    return "auto"


def strategy_name(strategy: Strategy) -> str:
    """The row's `strategy`."""
    names = {TrainingDDP: "ddp", CompiledReplicas: "compiled", ShardedBlocks: "fsdp2"}
    return names.get(type(strategy), "single")


def gradient_accumulation(model: nn.Module) -> Callable[[], AbstractContextManager[None]]:
    """Contexts for the backward of all but the last batch of a step, in which no gradients are exchanged.

    With `ddp.strategy=compiled` each backward averages: the step's gradients are the sum of averages.
    """
    if isinstance(model, DistributedDataParallel):
        return model.no_sync
    for module in model.modules():
        if isinstance(module, FSDPModule):  # the outermost, with all others in it
            return partial(_unsynchronised, module)
    return nullcontext


@contextmanager
def _unsynchronised(module: FSDPModule) -> Iterator[None]:
    module.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        module.set_requires_gradient_sync(True)
