"""The plan of a race: which races are the same, and where they are kept."""

import shlex
from dataclasses import replace
from pathlib import Path

from trainkit.config.composition import compose_config
from trainkit.config.factors import Typed
from trainkit.tuning.advise import command_of
from trainkit.tuning.goal import Goal
from trainkit.tuning.plan import RacePlan, RaceSettings
from trainkit.tuning.space import Space

SETTINGS = RaceSettings(
    budget_min=20.0, steps=None, memory_gib=None, minimize="time", slower_frac=0.02, job_steps=100, save_as=None
)


def plan() -> RacePlan:
    config = compose_config(["logger=none"], run_dir="")
    return RacePlan(SETTINGS, Typed([], {}), (), config, "config", Space([], {}), Goal(), (), nproc_per_node=None)


def test_a_race_of_several_processes_is_another_race():
    alone = plan()
    without = replace(alone, typed=Typed(["~optimizer.foreach"], {}))
    assert shlex.split(command_of(without, None))[-1] == "~optimizer.foreach"
    two = replace(alone, nproc_per_node=2)
    assert alone.identity != two.identity
    assert alone.folder_name() != two.folder_name()
    assert alone.identity == replace(alone, nproc_per_node=1).identity


def test_the_command_that_trains_has_the_processes_and_the_configs_of_the_race(tmp_path: Path):
    alone = plan()
    tuned = "experiment=tuned/simple_cnn-digits"
    assert command_of(alone, None) == f"python train.py {tuned}"
    assert command_of(alone, "mine") == f"python train.py --config-dir=mine {tuned}"
    two = replace(alone, nproc_per_node=2, words=("--config-dir=/own",))
    assert command_of(two, None) == f"torchrun --nproc-per-node=2 train.py --config-dir=/own {tuned}"
    assert shlex.split(command_of(two, str(tmp_path)))[3] == f"hydra.searchpath=['/own','{tmp_path}']"
