"""Objects of all ranks, in the order of ranks."""

from typing import Any

import torch.distributed as dist


def gather(local: Any) -> list[Any]:
    """One object of every rank, in the order of ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return [local]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, local)
    return everyone
