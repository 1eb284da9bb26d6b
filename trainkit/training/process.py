"""Settings of the process that a run or a diagnosis changes, restored when it ends."""

import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from trainkit.config.open_groups import named_nodes
from trainkit.config.schema import RunConfig
from trainkit.distributed.launch import ID_VARIABLE

LIGHTNING_VARIABLES = (
    *("PL_GLOBAL_SEED", "PL_SEED_WORKERS"),  # set by seed_everything
    "CUBLAS_WORKSPACE_CONFIG",  # by a Trainer with deterministic=True
    *("OMP_NUM_THREADS", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"),  # by DDP
)
OWN_VARIABLES = (ID_VARIABLE, "KINETO_LOG_LEVEL", "WANDB_SILENT", "HOME")
LOG_LEVELS = {
    "lightning.pytorch": logging.WARNING,
    "lightning.fabric": logging.WARNING,
    # A CUDA build of torch warns at the first compile for a CPU that there is no GPU.
    "torch.utils.cpp_extension": logging.ERROR,
    # If the network fixes a dimension that is marked dynamic, torch logs the traceback and also raises.
    "torch._guards": logging.CRITICAL,
}
IGNORED_WARNINGS = (
    "does not have many workers",
    "exists and is not empty",
    "log_every_n_steps",
    "LeafSpec",
    "dirpath has changed",
    "ended before the epoch ended and your dataloader is not resumable",  # StepLoop skips its batches
    "Detected call of `lr_scheduler.step",  # when the scaler skips the first step, which the row counts
)


@contextmanager
def run_settings(config: RunConfig) -> Iterator[None]:
    """A context with the settings of the process: precision of matrix products, log levels, warnings.

    Afterwards these are as before, and so are the settings that Lightning's Trainer and `seed_everything` change.
    """
    with ExitStack() as restore:
        _restore_torch(restore)
        _restore_variables(restore, [*LIGHTNING_VARIABLES, *OWN_VARIABLES])
        torch.set_float32_matmul_precision(config.amp.matmul_precision)
        restore.enter_context(warnings.catch_warnings())
        for message in IGNORED_WARNINGS:
            warnings.filterwarnings("ignore", f".*{message}.*")
        for name, level in LOG_LEVELS.items():
            logger = logging.getLogger(name)
            restore.callback(logger.setLevel, logger.level)
            logger.setLevel(level)
        loggers = named_nodes(config.logger).values()
        if loggers:
            os.environ.setdefault("HOME", _home())  # else W&B prints its log
        if any(node.get("offline") for node in loggers):
            os.environ.setdefault("WANDB_SILENT", "true")
        yield


def _restore_torch(restore: ExitStack) -> None:
    """Have the exit stack restore torch's global settings to their values of now."""
    cudnn = torch.backends.cudnn
    restore.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    restore.callback(torch.set_num_threads, torch.get_num_threads())
    restore.callback(setattr, cudnn, "benchmark", cudnn.benchmark)
    restore.callback(setattr, cudnn, "deterministic", cudnn.deterministic)
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()

    def restore_deterministic() -> None:
        now = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        if now != (deterministic, warn_only):  # setting it imports inductor
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)

    restore.callback(restore_deterministic)


def _restore_variables(restore: ExitStack, names: list[str]) -> None:
    """Have the exit stack restore environment variables to their values of now."""
    for name in names:
        value = os.environ.get(name)
        if value is None:
            restore.callback(os.environ.pop, name, None)
        else:
            restore.callback(os.environ.__setitem__, name, value)


def _home() -> str:
    """The user's directory by the system's list of users, or that of temporary files for a user who is not in it."""
    home = os.path.expanduser("~")
    return home if os.path.isdir(home) else tempfile.gettempdir()
