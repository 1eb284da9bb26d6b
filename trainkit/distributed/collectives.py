"""Exchange of Python objects between the ranks."""

from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

T = TypeVar("T")

# Of torch's process groups, which would count the time in which another rank compiles. The Watch does not: it ends a
# run after ddp.timeout_s.
COLLECTIVE_TIMEOUT = timedelta(days=7)
CONNECTION_WORDS = ("gloo", "NCCL", "nccl", "Connection closed by peer", "Connection reset by peer", "Broken pipe")


def is_communication_error(error: BaseException) -> bool:
    """Whether an error says that other ranks could not be reached, and not why. gloo's are plain RuntimeErrors."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in CONNECTION_WORDS)


def leave_process_group(is_ok: bool) -> None:
    """Leave the default process group. After a failure NCCL's is aborted: other ranks may be gone, or wait for this."""
    if is_ok:
        dist.destroy_process_group()
    elif dist.get_backend() == "nccl":
        dist.distributed_c10d._abort_process_group()


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


def num_ranks() -> int:
    """1 without a process group."""
    if not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size()
