"""Standard output whose reader may go, as in `python train.py | head -3`, or with its terminal."""

import errno
import io
import os
import sys
from typing import Any

GONE = (errno.EPIPE, errno.EIO)  # a pipe without a reader, a terminal that was closed


class LastingOutput(io.FileIO):
    """Writes to a file descriptor until its reader is gone, and nowhere from then on: what is measured goes on."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in GONE:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return len(data)


def outlive_reader() -> None:
    """Let prints of this process go on where the reader of standard output has gone; not where it is somebody else's
    stream (a notebook's, a test's)."""
    shown = sys.__stdout__
    if shown is None or sys.stdout is not shown:
        return
    shown.flush()
    buffered = io.BufferedWriter(LastingOutput(shown.fileno(), "wb", closefd=False))
    sys.stdout = io.TextIOWrapper(
        buffered, encoding=shown.encoding, errors=shown.errors, line_buffering=shown.line_buffering
    )
