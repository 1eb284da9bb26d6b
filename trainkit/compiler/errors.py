"""Exceptions in one line, and which of them come from compiling."""

import re
import textwrap

import torch

from trainkit.compiler import dynamo
from trainkit.compiler.dynamic_shapes import MarkError
from trainkit.compiler.source import INSTALLED, raising_line

MAX_LENGTH = 300  # transformers lists all its model types in an error
OF_WORKER = re.compile(r"Caught \w+ in .*worker process")  # torch's text ends with the worker's own error
HINT = "Set TORCHDYNAMO_VERBOSE"  # the beginning of the advice that closes torch's errors


class RecompileLimitError(RuntimeError):
    """More recompiles were needed than `compile.max_recompiles`, with `compile.on_recompile_limit=raise`."""

    way_out = (
        "raise compile.max_recompiles, leave sizes open (compile.dynamic=null or true), or let it run uncompiled "
        "(compile.on_recompile_limit=eager)"
    )


class ExportError(RuntimeError):
    """torch.export or AOTInductor cannot make a program of the network."""


def first_line(error: BaseException) -> str:
    """The error's type and the first line of its text; a line that ends with a colon brings the next one with it. Of an
    error in a worker of a DataLoader that error's."""
    if OF_WORKER.match(str(error)):
        return str(error).splitlines()[-1].strip()
    lines = []
    for line in str(error).splitlines():
        text = line.strip()
        if not text or line.startswith(HINT):
            continue
        lines.append(text)
        if not text.endswith(":"):
            break
    if not lines:
        return type(error).__name__
    return f"{type(error).__name__}: {' '.join(lines)}"


def located_line(error: BaseException) -> str:
    """The first line, and the location in the user's code, or else in a library's network, that raised the error."""
    line = textwrap.shorten(first_line(error), MAX_LENGTH, placeholder=" ...")
    location = raising_line(error)
    if location.file is None:
        return line
    return f"{line} (at {location.file.rpartition(INSTALLED)[2]}:{location.line})"


def is_compile_error(error: BaseException) -> bool:
    """Whether an exception came from compiling (not from running compiled code, and not from memory)."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            return False
        cause = getattr(cause, "inner_exception", None) or cause.__cause__
    return isinstance(error, (*dynamo.compile_errors(), RecompileLimitError, MarkError, ExportError))
