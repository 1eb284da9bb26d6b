"""How a run ends: an exception becomes the row's status and reason, and what the user is told."""

import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import torch
from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException

from trainkit.compiler.errors import RecompileLimitError, first_line, is_compile_error
from trainkit.config.errors import ConfigError
from trainkit.results.row import Row


class NonFiniteLossError(RuntimeError):
    """The training loss of an epoch is NaN or infinite."""


def outcome(error: BaseException | None) -> tuple[str, str | None]:
    """The status of a run that ended with this exception, and why in one line."""
    if error is None:
        return "ok", None
    text = first_line(error) if not isinstance(error, ConfigError) else str(error)
    if isinstance(error, KeyboardInterrupt | SystemExit):  # SIGTERMException of Lightning is a SystemExit
        return "interrupted", "stopped by SIGTERM" if isinstance(error, SIGTERMException) else "stopped by SIGINT"
    if isinstance(error, NonFiniteLossError):
        return "nan", text
    # The CPU allocator raises a plain RuntimeError.
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator: can't allocate" in text:
        return "oom", text
    return ("compile_error" if is_compile_error(error) else "failed"), text


def show(error: BaseException | None) -> None:
    """Print where a failure came from that is neither the user's to correct nor said by its status. Of a limit that was
    to end the run: one line."""
    if isinstance(error, RecompileLimitError):
        print(f"{error}; {error.way_out}", file=sys.stderr)
    elif outcome(error)[0] in ("failed", "compile_error") and not isinstance(
        error, ConfigError | MisconfigurationException
    ):
        traceback.print_exception(error)


def correct(error: BaseException | None) -> None:
    """Raise again, as a ConfigError, what the user must correct."""
    if isinstance(error, ConfigError):
        raise error
    if isinstance(error, MisconfigurationException):
        raise ConfigError(" ".join(str(error).split())) from error


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Within it SIGTERM raises, as it does within a fit of Lightning's."""

    def stopped(*_: object) -> None:
        raise SIGTERMException

    before = signal.signal(signal.SIGTERM, stopped)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def close_logger(logger: Logger | None, row: Row) -> None:
    """Give W&B the row as the run's summary and end its run: the next run of this process is another one."""
    if isinstance(logger, WandbLogger) and logger._experiment is not None:
        logger.experiment.summary.update(asdict(row))
        logger.experiment.finish(exit_code=0 if row.status == "ok" else 1)


def quiet(offline: bool) -> None:
    """Silence what Lightning and offline W&B say about every run; warnings about the user's own code stay."""
    if offline:
        os.environ.setdefault("WANDB_SILENT", "true")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # A CUDA build of torch warns at the first compile for a CPU that there is no GPU.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    # Of a marked dimension that the network fixes torch logs the traceback, and raises too.
    logging.getLogger("torch._guards").setLevel(logging.CRITICAL)
    for message in (
        "does not have many workers",
        "exists and is not empty",
        "log_every_n_steps",
        "LeafSpec",
        "dirpath has changed",
        "Detected call of `lr_scheduler.step",  # where the scaler skips the first step, which the row counts
    ):
        warnings.filterwarnings("ignore", f".*{message}.*")
