"""What an exception says in one line, and which ones come from compiling."""

import torch
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from trainkit.compiler.dynamic_shapes import MarkError

HINT = "Set TORCHDYNAMO_VERBOSE"  # how the advice begins that torch closes its errors with


class RecompileLimitError(RuntimeError):
    """More variants were needed than `compile.max_recompiles` allows, with `compile.on_recompile_limit=raise`."""

    way_out = (
        "raise compile.max_recompiles, leave sizes open (compile.dynamic=null or true), or let it run uncompiled "
        "(compile.on_recompile_limit=eager)"
    )


# The third: a dimension that was marked dynamic is not; the last says which.
COMPILE_ERRORS = (
    TorchDynamoException,
    FailOnRecompileLimitHit,
    ConstraintViolationError,
    RecompileLimitError,
    MarkError,
)


def first_line(error: BaseException) -> str:
    """The error's type and the first line of what it says, with the next one wherever a line only announces it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith(HINT)] or [""]
    last = next((number for number, line in enumerate(lines) if not line.endswith(":")), len(lines))
    text = " ".join(lines[: last + 1])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_compile_error(error: BaseException) -> bool:
    """Whether an exception came from compiling (not from running what was compiled, and not from memory)."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            return False
        cause = getattr(cause, "inner_exception", None) or cause.__cause__
    return isinstance(error, COMPILE_ERRORS)
