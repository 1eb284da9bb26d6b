"""The plan of a race: which races are the same, and where they are kept."""

from dataclasses import replace

from trainkit.config.composition import compose_config
from trainkit.config.factors import Typed
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
    two = replace(alone, nproc_per_node=2)
    assert alone.identity != two.identity
    assert alone.folder_name() != two.folder_name()
    assert alone.identity == replace(alone, nproc_per_node=1).identity
