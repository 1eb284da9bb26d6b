"""Hydra's sweeper `hydra/sweeper=race`: finds the settings to train with, within a budget, by trainkit.tuning.

Hydra looks for sweepers in packages under `hydra_plugins`, and imports this module for every command line.
"""

import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from trainkit import cli
from trainkit.config.errors import ConfigError
from trainkit.sweep.search import LAUNCHER


@dataclass
class RaceConfig:
    _target_: str = "hydra_plugins.trainkit_sweeper.sweeper.RaceSweeper"
    budget_min: float = 20.0
    steps: int | None = None
    memory_gib: float | None = None
    minimize: str = "time"
    slower_frac: float = 0.02
    job_steps: int = 100
    save_as: str | None = None
    into: str | None = None
    params: dict[str, str] = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/sweeper", name="race", node=RaceConfig)


class RaceSweeper(Sweeper):
    """Hydra's sweeper interface. `sweep` ends the process with status 1 if nothing that was tried can be advised."""

    def __init__(self, params: dict[str, str] | None, into: str | None, **settings: Any):
        from trainkit.tuning.plan import RaceSettings  # not for every command line

        self.params, self.into = params or {}, into
        self.settings = RaceSettings(**settings)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        if config.hydra.launcher._target_ != LAUNCHER:
            launcher = config.hydra.runtime.choices["hydra/launcher"]
            raise ConfigError(
                f"hydra/launcher = {launcher}: a race measures in fresh processes of this machine; use "
                "hydra/launcher=trainkit"
            )
        self.hydra_context, self.config = hydra_context, config
        self.launcher: Any = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        from trainkit.tuning.advise import advise
        from trainkit.tuning.plan import plan_race

        assert self.config is not None
        assert self.hydra_context is not None
        setup_globals()
        typed = {argument.partition("=")[0].lstrip("+") for argument in arguments}
        narrowed = [f"{name}={value}" for name, value in self.params.items() if name.lstrip("+") not in typed]
        plan = plan_race(self.settings, [*narrowed, *arguments], self.config.hydra, self.launcher.process_counts)
        load_config = self.hydra_context.config_loader.load_sweep_config
        with cli.one_line_errors_within():
            status = advise(
                plan,
                self.config,
                partial(load_config, self.config),
                timeout_s=self.launcher.timeout_s,
                into=self.into,
            )
        if status:
            sys.exit(status)
