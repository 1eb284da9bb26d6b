"""The plan of a race: which races are the same, and where they are kept."""

import os
import shlex
import shutil
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pynvml
import pytest

from trainkit.commands import train
from trainkit.config.composition import compose_config
from trainkit.config.errors import ConfigError
from trainkit.config.factors import Typed
from trainkit.tuning.advise import command_of, make_advisor
from trainkit.tuning.goal import Goal
from trainkit.tuning.plan import RacePlan, RaceSettings
from trainkit.tuning.space import Space

SETTINGS = RaceSettings(
    budget_min=20.0, steps=None, memory_gib=None, minimize="time", slower_frac=0.02, job_steps=100, save_as=None
)
SPACE = Space([], {"compile.mode": "default"})


def plan(*overrides: str) -> RacePlan:
    config = compose_config(["logger=none", *overrides], run_dir="")
    return RacePlan(SETTINGS, Typed([], {}), (), config, "config", SPACE, Goal(), (), nproc_per_node=None)


def test_a_race_of_several_processes_is_another_race():
    alone = plan()
    without = replace(alone, typed=Typed(["~optimizer.foreach"], {}))
    assert shlex.split(command_of(without, None))[-1] == "~optimizer.foreach"
    two = replace(alone, nproc_per_node=2)
    assert alone.identity != two.identity
    assert alone.folder_name() != two.folder_name()
    assert alone.identity == replace(alone, nproc_per_node=1).identity


def test_a_race_is_the_same_with_any_budget_name_and_log():
    first = plan()
    larger = replace(plan("sweep=mine", "logger=csv"), settings=replace(SETTINGS, budget_min=99.0, save_as="mine"))
    assert first.identity == larger.identity
    assert first.folder_name() == larger.folder_name()


def test_another_value_of_a_config_file_is_another_race(tmp_path: Path):
    """In a folder that the user named, too: the overrides are the same."""
    make_advisor(plan("optimizer.weight_decay=0.1"), tmp_path)
    make_advisor(plan("optimizer.weight_decay=0.1"), tmp_path)
    complaint = r"race\.jsonl is of another race: config digest \w{8} in place of \w{8}; move its folder away, or give "
    with pytest.raises(ConfigError, match=complaint):
        make_advisor(plan("optimizer.weight_decay=0.2"), tmp_path)


@pytest.mark.parametrize(
    ("accelerator", "visible", "device"),
    [
        ("auto", None, "NVIDIA H100, NVIDIA H200"),
        ("auto", "0,1", "NVIDIA H100, NVIDIA H200"),
        ("auto", "0,2", "NVIDIA H200"),
        ("auto", "", "16 x AMD EPYC"),
        ("cpu", None, "16 x AMD EPYC"),
    ],
)
def test_a_race_is_of_its_gpus_or_of_the_processors(
    accelerator: str, visible: str | None, device: str, monkeypatch: pytest.MonkeyPatch
):
    names = ["NVIDIA H200", "NVIDIA H100", "NVIDIA H200"]
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(names))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda index: names[index])
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr("trainkit.tuning.plan.cpu_name", lambda: "AMD EPYC")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    raced = plan(f"trainer.accelerator={accelerator}")
    assert raced.identity.device == device
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    names[:] = 3 * ["NVIDIA A100"]
    assert raced.identity.device != device
    assert raced.identity.torch == metadata.version("torch")


def test_the_command_that_trains_has_the_processes_and_the_configs_of_the_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(shutil, "which", lambda name: sys.executable)
    alone = plan()
    tuned = "experiment=tuned/simple_cnn-digits"
    assert command_of(alone, None) == f"python train.py {tuned}"
    assert command_of(alone, "mine") == f"python train.py --config-dir=mine {tuned}"
    two = replace(alone, nproc_per_node=2, words=("--config-dir=/own",))
    assert command_of(two, None) == f"torchrun --nproc-per-node=2 train.py --config-dir=/own {tuned}"
    assert shlex.split(command_of(two, str(tmp_path)))[3] == f"hydra.searchpath=['/own','{tmp_path}']"


def test_the_command_that_trains_is_one_of_trainkit_where_the_race_was(monkeypatch: pytest.MonkeyPatch):
    """A wheel has no train.py."""
    monkeypatch.setattr(sys, "argv", [train.__file__])
    alone, tuned = plan(), "experiment=tuned/simple_cnn-digits"
    assert command_of(alone, None) == f"trainkit train {tuned}"
    assert command_of(replace(alone, goal=Goal(kind="forward")), None) == f"trainkit bench {tuned}"
    two = replace(alone, nproc_per_node=2)
    assert command_of(two, None) == f"torchrun --nproc-per-node=2 -m trainkit train {tuned}"


def test_a_share_of_1_and_more_is_no_fraction():
    with pytest.raises(ConfigError, match=r"^hydra\.sweeper\.slower_frac = 5: expected a fraction below 1"):
        replace(SETTINGS, slower_frac=5)
