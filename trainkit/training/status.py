"""How a run ends: from its exception to the status and the reason in the row, and to the messages for the user."""

import sys
import traceback

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.exceptions import SIGTERMException

from trainkit import cli
from trainkit.compiler.errors import RecompileLimitError, first_line, is_compile_error, located_line
from trainkit.compiler.source import raising_line
from trainkit.config.errors import ConfigError
from trainkit.results.files import RunFileError
from trainkit.training.checkpoint_file import CheckpointWriteError

# The CPU allocator raises a plain RuntimeError.
CPU_OUT_OF_MEMORY = "DefaultCPUAllocator: can't allocate"

STOPS = KeyboardInterrupt | SIGTERMException  # of a signal; another SystemExit is of the user's code
UNEXPLAINED = ("failed", "compile_error")  # statuses that do not say why


class NonFiniteLossError(RuntimeError):
    """The training loss of an epoch is NaN or infinite."""


def end_status(error: BaseException | None) -> str:
    """The status of a run that ended with this exception: one of results.row.STATUSES."""
    if error is None:
        return "ok"
    if isinstance(error, STOPS):
        return "interrupted"
    if isinstance(error, NonFiniteLossError):
        return "nan"
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or CPU_OUT_OF_MEMORY in first_line(error):
        return "oom"
    if is_compile_error(error):
        return "compile_error"
    return "failed"


def end_reason(error: BaseException | None) -> str | None:
    """Why a run ended with this exception, in one line; of a ConfigError all its lines. None for a run that is ok."""
    if error is None:
        return None
    if isinstance(error, SIGTERMException):
        return "stopped by SIGTERM"
    if isinstance(error, KeyboardInterrupt):
        return "stopped by SIGINT"
    if isinstance(error, ConfigError | RunFileError):
        return str(error)
    if end_status(error) in UNEXPLAINED:
        return located_line(error)
    return first_line(error)


def print_error(error: BaseException | None) -> None:
    """Print an error, if neither its status nor a ConfigError explains it: one line if the user's code or a library's
    network has raised it, else its traceback, which HYDRA_FULL_ERROR=1 always shows.

    Of a RecompileLimitError, which the user requested, and of a file of the run that cannot be written print one line.
    """
    if isinstance(error, RecompileLimitError):
        print(f"{error}; {error.way_out}", file=sys.stderr)
        return
    if isinstance(error, CheckpointWriteError | RunFileError):
        print(error, file=sys.stderr)
        return
    if error is None or isinstance(error, ConfigError | MisconfigurationException):
        return
    if end_status(error) not in UNEXPLAINED:
        return
    if raising_line(error).file is None or cli.shows_tracebacks():
        traceback.print_exception(error)
        return
    notes = getattr(error, "__notes__", [])
    print(f"{located_line(error)}; HYDRA_FULL_ERROR=1 shows the traceback", *notes, sep="\n", file=sys.stderr)


def raise_config_error(error: BaseException | None) -> None:
    """Raise an error of the user's configuration again, as a ConfigError."""
    if isinstance(error, ConfigError):
        raise error
    if isinstance(error, MisconfigurationException):
        raise ConfigError(" ".join(str(error).split())) from error
