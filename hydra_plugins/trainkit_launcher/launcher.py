"""Hydra's launcher for sweeps (`-m`): checks the command line, and hands the jobs to trainkit.sweep.

Hydra looks for launchers in packages under `hydra_plugins`, and imports this module for every command line.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from trainkit import cli
from trainkit.config.composition import FORWARD
from trainkit.config.errors import ConfigError
from trainkit.config.validation import CALLED_BY_TRAIN, OTHER_KIND, of_other_kind
from trainkit.results.optimized import optimized_value
from trainkit.results.requested import run_overrides
from trainkit.results.row import Row
from trainkit.sweep.model_settings import fit_to_networks
from trainkit.sweep.plan import Sweep, SweptSetting
from trainkit.sweep.scaling import SCALINGS, parse_process_counts, split_batch
from trainkit.sweep.search import check_direction, is_race, is_search
from trainkit.sweep.slots import PARALLEL, find_slots

SWEEP_NAME = re.compile(r"[A-Za-z0-9_.+-]*[A-Za-z0-9_+-]")
MOST = 1e9  # seconds or repeats


@dataclass
class LauncherConfig:
    _target_: str = "hydra_plugins.trainkit_launcher.launcher.TrainkitLauncher"
    timeout_s: float | None = None
    nproc_per_node: Any = None
    scaling: str = "weak"
    repeats: int = 1
    parallel: Any = 1


ConfigStore.instance().store(group="hydra/launcher", name="trainkit", node=LauncherConfig)


class TrainkitLauncher(Launcher):
    """Hydra's launcher interface. `launch` ends the process with status 1 if a job has not ended `ok`."""

    def __init__(self, timeout_s: float | None, nproc_per_node: Any, scaling: str, repeats: int, parallel: Any):
        for setting, value in (("timeout_s", timeout_s), ("repeats", repeats)):
            if value is not None and not 0 < value <= MOST:
                raise ConfigError(
                    f"hydra.launcher.{setting} = {value}: expected a number above 0, and at most {MOST:g}"
                )
        if scaling not in SCALINGS:
            raise ConfigError(f"hydra.launcher.scaling = {scaling}: expected one of {', '.join(SCALINGS)}")
        if parallel != 1 and nproc_per_node not in (None, 1):
            raise ConfigError(f"{PARALLEL} = {parallel}: runs jobs of one process; set hydra.launcher.nproc_per_node=1")
        self.timeout_s, self.repeats, self.parallel = timeout_s, repeats, parallel
        self.process_counts = parse_process_counts(nproc_per_node)
        self.scaling = scaling

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            raise ConfigError("--multirun = True: a sweep starts its jobs itself; use hydra.launcher.nproc_per_node")
        if config.sweep is not None and not SWEEP_NAME.fullmatch(config.sweep):
            raise ConfigError(f"sweep = {config.sweep}: names a folder; use letters, digits and _ . + - alone")
        if is_race(config.hydra):
            if self.repeats != 1 or self.parallel != 1:
                raise ConfigError(
                    "hydra.launcher.repeats, .parallel: a race repeats its jobs as far as needed, one after another; "
                    "leave them out"
                )
            if self.scaling != "weak":
                raise ConfigError(
                    f"hydra.launcher.scaling = {self.scaling}: a race has one number of processes; set data.batch_size "
                    "to that of a process, and leave it out"
                )
        elif is_search(config.hydra):
            check_direction(config.hydra, config.optimized_metric)
            if len(self.process_counts) > 1:
                raise ConfigError(
                    f"hydra.launcher.nproc_per_node = {self.process_counts}: a sweeper that searches needs one figure "
                    "of each job; give one number"
                )
        self.hydra_context, self.config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs. A sweeper that searches gets `optimized_metric` of each.

        Raises ConfigError, before the first job, for overrides that do not compose or belong to the other script; a
        job that composes and cannot be run becomes a row."""
        from trainkit.sweep.sweep import run_sweep  # not for every command line

        setup_globals()
        loader = self.hydra_context.config_loader
        jobs = fit_to_networks(job_overrides, partial(loader.load_sweep_config, self.config))
        settings = []
        for overrides in jobs.overrides:
            config = loader.load_sweep_config(self.config, overrides)
            for nproc_per_node in self.process_counts:
                if self.scaling == "weak":
                    settings.append(SweptSetting(overrides, config, nproc_per_node))
                    continue
                own_overrides = split_batch(overrides, config.data, nproc_per_node)
                own_config = loader.load_sweep_config(self.config, own_overrides)
                settings.append(SweptSetting(own_overrides, own_config, nproc_per_node))
        if self.config.job.kind == "forward" and self.config.hydra.job.config_name != FORWARD:
            raise ConfigError(CALLED_BY_TRAIN)
        check_kind(settings)
        folder = Path(self.config.hydra.sweep.dir)
        uses_gpus = any(setting.config.trainer.accelerator != "cpu" for setting in settings)
        slots = find_slots(self.parallel, len(settings), self.repeats, uses_gpus)
        sweep = Sweep(folder.name, folder, self.config, self.timeout_s, self.repeats, slots)
        for note in jobs.notes:
            print(note, flush=True)
        searches = is_search(self.config.hydra)
        with cli.one_line_errors_within():
            result = run_sweep(sweep, settings, reports=not searches)
        if result.stopped is not None:
            print(f"interrupted; the same command with sweep={sweep.name} goes on", flush=True)
            sys.exit(result.stopped)
        if searches:
            return [self._job_return(setting, result.rows) for setting in settings]
        if any(row.status != "ok" for row in result.rows):
            sys.exit(1)
        return [JobReturn(setting.overrides, _return_value=None, status=JobStatus.COMPLETED) for setting in settings]

    def _job_return(self, setting: SweptSetting, rows: Sequence[Row]) -> JobReturn:
        """What the sweeper gets of a setting, over all repeats: the optimized metric, or why there is none."""
        own_overrides = run_overrides(setting.overrides)
        own_rows = [row for row in rows if row.overrides == own_overrides]
        try:
            value = optimized_value(own_rows, self.config.optimized_metric)
        except ValueError as error:
            return JobReturn(setting.overrides, _return_value=error, status=JobStatus.FAILED)
        return JobReturn(setting.overrides, _return_value=value, status=JobStatus.COMPLETED)


def check_kind(settings: Sequence[SweptSetting]) -> None:
    """Raise ConfigError for settings that every job which has them would refuse: they belong to the other script."""
    names: dict[str, None] = {}
    for setting in settings:
        forward: Any = OmegaConf.to_object(setting.config.forward)
        names |= dict.fromkeys(of_other_kind(setting.config.job.kind, forward, setting.overrides))
    if names:
        raise ConfigError(f"{', '.join(names)}: {OTHER_KIND[settings[0].config.job.kind]}")
