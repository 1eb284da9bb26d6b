"""The plan of a sweep: its settings and jobs."""

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from trainkit.sweep.slots import Slot


@dataclass(frozen=True)
class Sweep:
    """A sweep as requested: its name and directory, Hydra's config of it, and the settings of hydra.launcher.

    `timeout_source` is the setting that the time limit of a job comes from.
    """

    name: str
    folder: Path
    config: DictConfig
    timeout_s: float | None
    repeats: int
    slots: tuple[Slot, ...]
    timeout_source: str = "hydra.launcher.timeout_s"


@dataclass(frozen=True)
class SweptSetting:
    """The overrides of a job, the config that they compose to, and the processes that torchrun starts for it (None:
    without torchrun). It is run once in every repeat."""

    overrides: list[str]
    config: DictConfig
    nproc_per_node: int | None


@dataclass(frozen=True)
class Job:
    """A job as requested: a swept setting, the overrides that tell it from the other jobs, its repeat, and its number
    as it is shown."""

    overrides: list[str]
    config: DictConfig
    nproc_per_node: int | None
    label: str
    repeat: int
    number: str
