"""Exchange of Python objects between the ranks."""

from typing import TypeVar

import torch.distributed as dist

T = TypeVar("T")


def gather(local: T) -> list[T]:
    """The objects of all ranks, in the order of ranks, on every rank."""
    if not (dist.is_available() and dist.is_initialized()):
        return [local]
    gathered: list[T] = [local] * dist.get_world_size()
    dist.all_gather_object(gathered, local)
    return gathered


def rank() -> int:
    """This process's rank; 0 without a process group."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0
    return dist.get_rank()
