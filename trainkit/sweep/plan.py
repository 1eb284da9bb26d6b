"""The plan of a sweep: its settings and jobs."""

from collections.abc import Sequence
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


def list_jobs(settings: Sequence[SweptSetting], repeats: int) -> list[Job]:
    """The jobs of all repeats in their order, each labelled with the overrides that not all settings share."""
    shared = shared_overrides(settings)
    counts_differ = len({setting.nproc_per_node for setting in settings}) > 1
    jobs: list[Job] = []
    for repeat in range(repeats):
        for setting in settings:
            own = [override for override in setting.overrides if override not in shared]
            if counts_differ:
                own.append(f"nproc_per_node={setting.nproc_per_node}")
            number = f"[{len(jobs) + 1}/{len(settings) * repeats}]"
            jobs.append(Job(setting.overrides, setting.config, setting.nproc_per_node, " ".join(own), repeat, number))
    return jobs


def shared_overrides(settings: Sequence[SweptSetting]) -> set[str]:
    """The overrides that all settings have."""
    shared = set(settings[0].overrides)
    for setting in settings:
        shared &= set(setting.overrides)
    return shared
