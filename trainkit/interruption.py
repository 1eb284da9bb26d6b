"""The end of a process by SIGINT or SIGTERM where no run handles them: before it, after it, and in its imports."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def end_on_signals() -> Iterator[None]:
    """A context that ends the process with status 130 on SIGINT and 143 on SIGTERM, without a traceback, after what
    was entered within it has been left. A run within it handles both itself. For the main thread, which ends after it:
    from then on both end the process as the system does, for Python's own last steps print a traceback of each."""
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
