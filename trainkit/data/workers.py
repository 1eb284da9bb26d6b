"""What the processes that load batches share with the one that trains, and how their failures reach it."""

import multiprocessing
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import queues, util
from types import TracebackType
from typing import Any

from trainkit.compiler.private_names import require
from trainkit.config.errors import ConfigError


def prepare_for_workers(num_workers: int) -> None:
    """Make the folder of the sockets over which workers hand on batches; each would make its own, and leave it behind
    if it is killed. Raises ConfigError if the system has no room for it, or for a lock in shared memory."""
    with sharing_memory(num_workers):
        multiprocessing.get_context().Lock()
        util.get_temp_dir()


@contextmanager
def sharing_memory(num_workers: int) -> Iterator[None]:
    """A context for making what workers share. Raises ConfigError if the system has no room for it."""
    try:
        yield
    except OSError as error:
        way_out = "make room in /dev/shm and TMPDIR, or set data.num_workers=0"
        raise ConfigError(
            f"data.num_workers = {num_workers}: workers cannot share memory ({error.strerror}); {way_out}"
        ) from error


def remove_shared_folder() -> None:
    """Remove the folder, in a process that ends without leaving Python. Several processes may do so at once."""
    with suppress(OSError):
        shutil.rmtree(util.get_temp_dir(), ignore_errors=True)


def begin_worker(worker: int) -> None:
    """Have this worker tell the process that trains of a batch that it cannot hand on, end in silence if that process
    is gone, and remove the folder then."""
    # A hook of Python for its own executors. Python prints a traceback, and the process that trains waits forever.
    queues.Queue._on_queue_feeder_error = _hand_on_error  # type: ignore[attr-defined]
    sys.excepthook = _print_own_error
    util.Finalize(None, _remove_after_parent, args=[os.getppid()], exitpriority=-200)


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


def _remove_after_parent(parent: int) -> None:
    if os.getppid() != parent:
        remove_shared_folder()
