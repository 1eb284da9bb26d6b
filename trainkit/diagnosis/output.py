"""Suppress the output of a network while copies of it run: prints, warnings and log records."""

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from typing import Any

logger = logging.getLogger(__name__)
KEPT_LOGGERS = ("torch", "trainkit")  # their records are not the network's


class _Discard(io.FileIO):
    """A file that drops its input and remembers whether there was any."""

    written = False

    def write(self, data: Any) -> int:
        self.written = True
        return len(data)


@contextmanager
def suppressed_output() -> Iterator[None]:
    """Drop the output of Python code to sys.stdout and sys.stderr, with warnings, and log records, but torch's.

    Errors pass. The first time that output was dropped, a log line says so.

    Dynamo sees no difference: print, warnings.warn and loggers stay as they were, and the streams are of the class of
    the real ones. Dynamo would trace a method of another class, and the graph would not break there.
    """
    discard = _Discard(os.devnull, "w")
    stream = io.TextIOWrapper(discard, "utf-8", "replace")

    def is_kept(record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] in KEPT_LOGGERS:
            return True
        discard.written = True
        return False

    handlers = _log_handlers()
    for handler in handlers:
        handler.addFilter(is_kept)
    try:
        with redirect_stdout(stream), redirect_stderr(stream):
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_kept)
        stream.flush()
        if discard.written:
            _log_suppression()


def _log_handlers() -> set[logging.Handler]:
    """All handlers that exist. A handler that the network adds later writes to the suppressed streams."""
    handlers = set(logging.root.handlers)
    for registered in logging.root.manager.loggerDict.values():
        if isinstance(registered, logging.Logger):  # and no placeholder
            handlers.update(registered.handlers)
    if logging.lastResort is not None:
        handlers.add(logging.lastResort)
    return handlers


@cache  # once in a process
def _log_suppression() -> None:
    logger.info("the network's prints, warnings and log records are suppressed")
