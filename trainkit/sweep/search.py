"""Sweepers that search, and launchers other than trainkit's: what a sweep of theirs says at its end."""

import atexit
import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from trainkit.config.errors import ConfigError
from trainkit.formatting import fixed
from trainkit.results.optimized import best_row, check_optimized, direction_label, is_maximized
from trainkit.results.row import Row
from trainkit.results.runs import has_rows, read_rows

RACE = "hydra_plugins.trainkit_sweeper.sweeper.RaceSweeper"
GRID = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"  # tries all combinations; its jobs return nothing
LAUNCHER = "hydra_plugins.trainkit_launcher.launcher.TrainkitLauncher"
SHARED = ("basic", "joblib")  # launchers whose jobs share processes


def is_search(hydra: DictConfig) -> bool:
    """Whether a sweeper chooses the next jobs by what the last ones returned."""
    return hydra.sweeper._target_ not in (GRID, RACE)


def is_race(hydra: DictConfig) -> bool:
    """Whether the sweeper is trainkit's own, which runs the jobs itself."""
    return bool(hydra.sweeper._target_ == RACE)


def check_direction(hydra: DictConfig, metric: str) -> None:
    """Raise ConfigError if the metric is no measured column, or if the sweeper searches in the wrong direction."""
    check_optimized(metric)
    typed: Any = hydra.sweeper.get("direction")
    is_higher_better = is_maximized(metric)
    if typed is None or is_higher_better is None:
        return
    direction = str(getattr(typed, "name", typed))
    expected = "maximize" if is_higher_better else "minimize"
    if direction in ("minimize", "maximize") and direction != expected:
        raise ConfigError(
            f"hydra.sweeper.direction = {direction}: optimized_metric = {metric}, of which "
            f"{direction_label(is_higher_better)}; use hydra.sweeper.direction={expected}"
        )


def announce_end(config: DictConfig) -> None:
    """Have this process print at its end how to compare the rows, unless trainkit's launcher compares them."""
    searches = is_search(config.hydra)
    if config.hydra.launcher._target_ == LAUNCHER and not searches:
        return
    if searches:
        try:
            check_direction(config.hydra, config.optimized_metric)
        except ConfigError:  # which the launcher or the first job raises: Hydra only warns of it here
            return
    folder, metric, process = Path(config.hydra.sweep.dir), config.optimized_metric, os.getpid()
    launcher = config.hydra.runtime.choices["hydra/launcher"]

    def print_end() -> None:
        if os.getpid() != process or not has_rows(folder):  # a fork of it; nothing has run
            return
        rows = read_rows(folder)
        if searches:
            print(best_label(rows, metric))
        if launcher in SHARED:
            print("jobs shared processes: hydra/launcher=trainkit measures step, compile time and memory of each apart")
        print(f"rows: {folder}; compare them: python -m trainkit report {folder}", flush=True)

    atexit.register(print_end)


def best_label(rows: list[Row], metric: str) -> str:
    """The best row of a search in one line."""
    best = best_row(rows, metric)
    if best is None:
        return f"none of {len(rows)} runs has {metric}"
    shared = set(best.overrides)
    for row in rows:
        shared &= set(row.overrides)
    own = [override for override in best.overrides if override not in shared]
    direction = direction_label(is_maximized(metric, rows))
    value = fixed(getattr(best, metric), 4)
    return f"best of {len(rows)} runs: {metric} {value} ({direction}) with {' '.join(own) or 'the same settings'}"
