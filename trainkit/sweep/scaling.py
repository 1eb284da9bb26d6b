"""The numbers of processes that a sweep runs its settings with, and the batch of each."""

import re
from collections.abc import Sequence
from typing import Any

from trainkit.config.errors import ConfigError

NPROC = "hydra.launcher.nproc_per_node"
SCALINGS = ("weak", "strong")  # the same batch for each process, or the same batch for all of them together


def parse_process_counts(value: Any) -> list[int | None]:
    """The numbers of processes, in their order; None: without torchrun. Raises ConfigError."""
    if value is None:
        return [None]
    counts = [value]
    if isinstance(value, str):
        counts = value.split(",")
    elif isinstance(value, Sequence):  # a list of OmegaConf's too
        counts = list(value)
    numbers: list[int | None] = []
    for count in counts:
        if not re.fullmatch(r" *[1-9][0-9]* *", str(count)) or int(count) in numbers:
            typed = ",".join(map(str, counts))
            raise ConfigError(f"{NPROC} = {typed}: expected a number of processes, or different ones as in 1,2")
        numbers.append(int(count))
    return numbers


def split_batch(overrides: Sequence[str], data: Any, num_processes: int | None) -> list[str]:
    """The overrides with which so many processes have `data.batch_size` samples together. Raises ConfigError."""
    batch_size = data.get("batch_size")
    if num_processes is None:
        raise ConfigError(f"hydra.launcher.scaling = strong: splits the batch over processes; set {NPROC} with it")
    if data.get("batch_sizes"):
        raise ConfigError("hydra.launcher.scaling = strong: splits one data.batch_size; leave data.batch_sizes out")
    if not isinstance(batch_size, int):  # the job's own check refuses it
        return list(overrides)
    if batch_size % num_processes:
        raise ConfigError(
            f"data.batch_size = {batch_size}: {num_processes} processes cannot share it equally; "
            f"try data.batch_size={batch_size - batch_size % num_processes or num_processes}"
        )
    other_overrides = [override for override in overrides if not override.startswith("data.batch_size=")]
    return [*other_overrides, f"data.batch_size={batch_size // num_processes}"]
