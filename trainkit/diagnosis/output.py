"""What a network prints, warns and logs while copies of it run is kept away from the terminal."""

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from typing import Any

logger = logging.getLogger(__name__)
HEARD = ("torch", "trainkit")  # whose log records are not the network's


class _Nowhere(io.FileIO):
    """Takes all that is written to it, and knows whether anything was."""

    written = False

    def write(self, text: Any) -> int:
        self.written = True
        return len(text)


@contextmanager
def silenced() -> Iterator[None]:
    """Within it what Python code writes to sys.stdout and sys.stderr goes nowhere, warnings with it, and so does what
    is logged, but by torch. Errors pass. The first time that something was kept away, a line of the log says so.

    For Dynamo all looks as before: print, warnings.warn and loggers are what they were, and the streams are of the
    class that the real ones have, since a method of another class would be traced, and break nothing.
    """
    nowhere = _Nowhere(os.devnull, "w")
    stream = io.TextIOWrapper(nowhere, "utf-8", "replace")

    def heard(record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] in HEARD:
            return True
        nowhere.written = True
        return False

    handlers = _handlers()
    for handler in handlers:
        handler.addFilter(heard)
    try:
        with redirect_stdout(stream), redirect_stderr(stream):
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(heard)
        stream.flush()
        if nowhere.written:
            _say_so()


def _handlers() -> list[logging.Handler]:
    """All that exist; one that the network makes later writes to the stream of `silenced`."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    known = {handler for one in loggers if isinstance(one, logging.Logger) for handler in one.handlers}
    return [*known, *filter(None, [logging.lastResort])]


@cache  # said once in a process
def _say_so() -> None:
    logger.info("what the network prints, warns and logs is left out")
