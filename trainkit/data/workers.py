"""What the processes that load batches share with the one that trains, and how their failures reach it."""

import multiprocessing
import os
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, queues, util
from types import TracebackType
from typing import Any

from trainkit.compiler.private_names import require
from trainkit.config.errors import ConfigError

# In the RuntimeError that torch raises in a worker without room for its batch.
UNALLOCATED = re.compile(r"unable to allocate shared memory\(shm\) for file <.*>: (.*) \(\d+\)")


def check_shared_memory(num_workers: int) -> None:
    """Raise ConfigError if the system has no room for a lock in shared memory."""
    with sharing_memory(num_workers):
        multiprocessing.get_context().Lock()


@contextmanager
def sharing_memory(num_workers: int) -> Iterator[None]:
    """A context for making what workers share. Raises ConfigError if the system has no room for it."""
    try:
        yield
    except OSError as error:
        raise _no_room(num_workers, error.strerror) from error


@contextmanager
def receiving_batches(num_workers: int) -> Iterator[None]:
    """A context for taking batches from workers. Raises ConfigError if a worker had no room to share one."""
    try:
        yield
    except RuntimeError as error:
        unallocated = UNALLOCATED.search(str(error))
        if unallocated is None:
            raise
        raise _no_room(num_workers, unallocated[1]) from error


def _no_room(num_workers: int, reason: str | None) -> ConfigError:
    way_out = "make /dev/shm larger (docker run --shm-size=8g), or set data.num_workers=0"
    return ConfigError(f"data.num_workers = {num_workers}: workers cannot share memory ({reason}); {way_out}")


def begin_worker(worker: int) -> None:
    """Have this worker tell the process that trains of a batch that it cannot hand on, end in silence if that process
    is gone, and on Linux leave no files behind."""
    # A hook of Python for its own executors. Python prints a traceback, and the process that trains waits forever.
    queues.Queue._on_queue_feeder_error = _hand_on_error  # type: ignore[attr-defined]
    if util.abstract_sockets_supported:
        connection.arbitrary_address = _abstract_address  # type: ignore[attr-defined]
    sys.excepthook = _print_own_error


def _abstract_address(family: str) -> str:
    """Return an address for the socket over which this worker hands on batches.

    A socket in Linux's abstract namespace ends with its process. One in a folder outlives processes that are killed.
    Only processes with the key of this run can connect, as multiprocessing checks.
    """
    return f"\0{uuid.uuid4()}"


def _hand_on_error(queue: Any, error: Exception, unsent: Any) -> None:
    wrapper = require("ExceptionWrapper")
    if isinstance(unsent[1], wrapper):
        os._exit(1)  # not even an error can be handed on
    information = type(error), error, error.__traceback__
    queue.put((unsent[0], wrapper(information, where="in a DataLoader worker process")))


def _print_own_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Called by the thread that hands on batches: the process that trains may be killed while it takes one."""
    if not isinstance(error, EOFError | ConnectionError):
        sys.__excepthook__(kind, error, trace)
