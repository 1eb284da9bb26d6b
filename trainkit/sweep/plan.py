"""The plan of a sweep: its settings and jobs."""

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig


@dataclass(frozen=True)
class Sweep:
    """A sweep as requested: its name and directory, Hydra's config of it, and the settings of hydra.launcher."""

    name: str
    folder: Path
    config: DictConfig
    timeout_s: float | None
    nproc_per_node: int | None
    repeats: int


@dataclass(frozen=True)
class SweptSetting:
    """The overrides of a job, and the config that they compose to. It is run once in every repeat."""

    overrides: list[str]
    config: DictConfig


@dataclass(frozen=True)
class Job:
    """A job as requested: its overrides, the config that they compose to, the overrides that tell it from the other
    jobs, and the number of its repeat."""

    overrides: list[str]
    config: DictConfig
    label: str
    repeat: int
