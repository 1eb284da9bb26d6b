"""The plan of a race: its settings, its space, its folder, and the overrides of its jobs."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from trainkit.config.complaints import compose_typed
from trainkit.config.composition import CONF, hydra_apart
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.factors import (
    BATCH_SIZE,
    MODE,
    Factor,
    FactorValue,
    LeftOut,
    Typed,
    begins_with,
    conditions_of,
    drop_constant,
    narrow,
    read_factors,
    split_typed,
)
from trainkit.config.network_file import network_digest
from trainkit.config.schema import RunConfig
from trainkit.config.search_path import own_folders
from trainkit.device_names import cpu_name, gpu_names
from trainkit.interruption import hold_signals
from trainkit.results.ledger import RaceIdentity
from trainkit.results.requested import ADDED_BY_LAUNCHER, run_overrides
from trainkit.sweep.slots import visible_gpus
from trainkit.tuning.goal import MEMORY, TIME, Goal
from trainkit.tuning.space import SEARCHED, Overrides, Space, value_in

FILE_NAME = re.compile(r"[A-Za-z0-9_.-]+")
LENGTHS = ("trainer.max_epochs", "trainer.max_steps", "trainer.limit_train_batches")
FEWEST_STEPS = 20  # of a job with a large batch
NO_LOG = "logger=none"
MOST = 1e12  # minutes, steps or GiB


@dataclass(frozen=True)
class RaceSettings:
    """The settings of hydra.sweeper.*, checked. Raises ConfigError with every complaint at once."""

    budget_min: float
    steps: int | None
    memory_gib: float | None
    minimize: str
    slower_frac: float
    job_steps: int
    save_as: str | None

    def __post_init__(self) -> None:
        complaints = []
        for name in ("budget_min", "steps", "memory_gib", "slower_frac", "job_steps"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= MOST:
                complaints.append(f"hydra.sweeper.{name} = {value}: expected a number above 0, and at most {MOST:,.0f}")
        if MOST >= self.slower_frac >= 1:
            complaints.append(
                f"hydra.sweeper.slower_frac = {self.slower_frac:g}: expected a fraction below 1, as 0.05 for 5 %"
            )
        if self.minimize not in (TIME, MEMORY):
            complaints.append(f"hydra.sweeper.minimize = {self.minimize}: expected one of {TIME}, {MEMORY}")
        if self.save_as is not None and not FILE_NAME.fullmatch(self.save_as):
            complaints.append(
                f"hydra.sweeper.save_as = {self.save_as}: names a file; use letters, digits and _ . - alone"
            )
        refuse(complaints)


@dataclass(frozen=True)
class RacePlan:
    """A race to run. `typed` are the overrides of the command line, `words` the options that find its configs,
    `left_out` the factors of conf/tune that are not tried. `config` is the run that the race begins with.
    `nproc_per_node` is the number of processes that the launcher starts for a job, None for a plain run."""

    settings: RaceSettings
    typed: Typed
    words: tuple[str, ...]
    config: RunConfig
    config_name: str
    space: Space
    goal: Goal
    left_out: tuple[LeftOut, ...]
    nproc_per_node: int | None

    @property
    def num_processes(self) -> int:
        return _num_processes(self.nproc_per_node, self.config)

    @property
    def identity(self) -> RaceIdentity:
        return RaceIdentity(
            model=self.config.job.model,
            data=self.config.job.data,
            goal=self.goal.words,
            base=run_overrides(self.typed.fixed),
            job_steps=self.settings.job_steps,
            device=device_of(self.config),
            torch=metadata.version("torch"),
            config_digest=config_digest(self.config),
            network_digest=network_digest(self.config.model.get("_target_")),
            num_processes=self.num_processes,
        )

    @property
    def save_as(self) -> str:
        return self.settings.save_as or f"{self.config.job.model}-{self.config.job.data}"

    def folder_name(self) -> str:
        """The name of the race's folder: the same for the same command on a machine like this one, with any budget."""
        digest = digest_of(f"{self.identity}\n{self.typed.swept}")
        return f"race-{self.config.job.model}-{self.config.job.data}-{digest}"

    def job_overrides(self, overrides: Overrides, repeat: int, check: bool) -> list[str]:
        """The overrides of a job of an arm: those of a short job, but for what the user typed. Where the user has the
        jobs validate, each repeat has a seed of its own."""
        short = [NO_LOG]
        if self.goal.kind == "train":
            short = short_training(self._num_steps(overrides))
        typed = set(self.typed.fixed_settings)
        if typed.intersection(LENGTHS):
            typed.update(LENGTHS)
        added = [override for override in short if override.partition("=")[0] not in typed]
        all_overrides = [*self.typed.fixed, *added, *overrides]
        if "trainer.limit_val_batches" in typed and repeat > 0:
            all_overrides.append(f"seed={self.config.seed + repeat}")
        if check and self.complaint([*all_overrides, "check=true"]) is None:
            all_overrides.append("check=true")
        return all_overrides

    def complaint(self, overrides: Sequence[str]) -> str | None:
        """Why these overrides cannot be run; None if they can."""
        try:
            self.compose(overrides)
        except ConfigError as error:
            return error.complaints[0]
        return None

    def compose(self, overrides: Sequence[str]) -> RunConfig:
        return _compose_run(self.words, overrides, self.config_name)

    def _num_steps(self, overrides: Overrides) -> int:
        """Steps with about as many samples as those of the first batch size."""
        size, most = value_in(overrides, BATCH_SIZE), self.settings.job_steps
        if size is None or self.goal.batch_size is None:
            return most
        return max(min(most * self.goal.batch_size // int(size), most), min(FEWEST_STEPS, most))


def short_training(num_steps: int) -> list[str]:
    """The overrides of a job that trains for a few steps, validates nothing, and leaves no log and no checkpoint."""
    return [
        NO_LOG, f"trainer.max_steps={num_steps}", f"trainer.max_epochs={num_steps}", "trainer.limit_val_batches=0",
        "checkpoint.save_last=false",
    ]  # fmt: skip


def plan_race(
    settings: RaceSettings, arguments: Sequence[str], hydra: DictConfig, process_counts: Sequence[int | None]
) -> RacePlan:
    """Plan a race from the overrides of a command line. Raises ConfigError with a line for each mistake."""
    typed = split_typed(arguments)
    words = _config_words(hydra)
    config_name = hydra.job.config_name
    config = _compose_run(words, typed.fixed, config_name)
    known_factors = read_factors([*own_folders(list(words)), CONF])
    refuse(_complaints_of_values(typed, known_factors, words, config_name))
    if len(process_counts) > 1:
        raise ConfigError("hydra.launcher.nproc_per_node: a race is run on one number of processes; give one")
    gpus = visible_gpus() if config.trainer.accelerator != "cpu" else []
    num_processes = _num_processes(process_counts[0], config)
    conditions = conditions_of(config, len(gpus), num_processes)
    kind = config.job.kind.value
    if kind == "forward" and settings.steps is not None:
        raise ConfigError(f"hydra.sweeper.steps = {settings.steps}: calls have no steps of training; leave it out")
    factors, left_out = narrow(known_factors, typed, conditions, kind)
    begins = {MODE: config.compile.mode.value}
    for factor in factors:
        begins[factor.setting] = begins_with(factor.setting, config, hydra.runtime.choices)
    factors, constant = drop_constant(factors, begins)
    space = Space(factors, begins)
    goal = Goal(
        kind=kind,
        minimize=settings.minimize,
        num_steps=settings.steps,
        memory_gib=settings.memory_gib,
        slower_frac=settings.slower_frac,
        batch_size=_first_batch_size(space, config),
    )
    plan = RacePlan(settings, typed, words, config, config_name, space, goal, (*left_out, *constant), process_counts[0])
    complaint = plan.complaint([*typed.fixed, *space.base.overrides])
    if complaint is not None:
        if space.values(MODE):
            complaint += "; a race begins with eager, unless you give compile.mode one value, as compile.mode=default"
        raise ConfigError(complaint)
    return plan


def _first_batch_size(space: Space, config: RunConfig) -> int | None:
    """The batch size of the first arm."""
    size = value_in(space.base.overrides, BATCH_SIZE)
    if size is not None:
        return int(size)
    return config.data.get("batch_size")


def _num_processes(nproc_per_node: int | None, config: RunConfig) -> int:
    """The processes of a job that the launcher starts, or of a plain run."""
    return nproc_per_node or config.trainer.devices or 1


def device_of(config: RunConfig) -> str:
    """The names of the GPUs that a run can use, or those of the processors of a run without one."""
    gpus: list[str] = []
    if config.trainer.accelerator != "cpu":
        gpus = sorted(set(gpu_names(visible_gpus())))
    return ", ".join(gpus) or f"{os.cpu_count()} x {cpu_name()}"


def config_digest(config: RunConfig) -> str:
    """The digits that tell the settings of a run from others. Its folders, its logs, and what a launcher adds are no
    part of them."""
    settings = asdict(config)
    settings["job"] = config.job.kind
    for name in (*ADDED_BY_LAUNCHER, "logger"):
        del settings[name]
    return digest_of(json.dumps(settings, default=str))


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _complaints_of_values(
    typed: Typed, factors: Sequence[Factor], words: Sequence[str], config_name: str
) -> Iterator[str]:
    """A line for each of several typed values that contradicts the fixed values."""
    facts: dict[tuple[str, str], FactorValue] = {}
    for factor in factors:
        for value, value_facts in factor.values.items():
            facts[factor.setting, value] = value_facts
    for setting, values in typed.swept.items():
        for value in values:
            if (setting, value) == SEARCHED:
                continue
            overrides = [*typed.fixed, f"{setting}={value}"]
            for name, needed in facts.get((setting, value), FactorValue()).together.items():
                if typed.allows(name, needed):
                    overrides.append(f"{name}={needed}")
            try:
                _compose_run(words, overrides, config_name)
            except ConfigError as error:
                yield error.complaints[0]


def _config_words(hydra: Any) -> tuple[str, ...]:
    """The words of the command line that say where configs are."""
    words = []
    for source in hydra.runtime.config_sources:
        if source.provider == "command-line":
            words.append(f"--config-dir={source.path.removeprefix('file://')}")
    for override in hydra.overrides.hydra:
        if override.startswith("hydra.searchpath="):
            words.append(override)
    return tuple(words)


def _compose_run(words: Sequence[str], overrides: Sequence[str], name: str) -> RunConfig:
    with hold_signals(), hydra_apart():  # omegaconf turns a KeyboardInterrupt into errors of its own
        return compose_typed([*words, *overrides], CONF, run_dir="", name=name)


def race_folder(plan: RacePlan, config: DictConfig) -> Path:
    """The folder of a race: that of the sweep if the user named one, else one that the same command finds again."""
    is_named = config.sweep is not None or any(
        override.startswith("hydra.sweep.dir=") for override in config.hydra.overrides.hydra
    )
    folder = Path(config.hydra.sweep.dir)
    if is_named:
        return folder
    return folder.parent / plan.folder_name()
