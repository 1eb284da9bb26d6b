"""The experiment that a race leaves: it composes to the run that was raced."""

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.report.test_advice import ADVICE, BEST, JOB
from trainkit.config.composition import compose_config, hydra_apart
from trainkit.config.errors import ConfigError
from trainkit.tuning.tuned import refuse_own_experiment, refuse_unwritable, write_tuned

GROUPS = ("model", "data", "optimizer", "amp", "compile", "experiment")
MEASURED = replace(JOB, device_name="H100", torch_version="2.13.0")
ADVICE_WITH_JOB = replace(ADVICE, choice=replace(BEST, jobs=(MEASURED,)))


def composed(overrides: list[str]) -> dict[str, Any]:
    """The settings of a run, without what Hydra knows of it, and without the name of its log."""
    with hydra_apart():
        settings = asdict(compose_config([*overrides, "logger=none"], run_dir=""))
    del settings["job"], settings["tuned"]
    return settings


@pytest.mark.parametrize(
    "overrides",
    [
        ["model=resnet18", "data.batch_size=32", "compile.mode=default"],
        ["experiment=full_size/gpt2", "compile.mode=reduce-overhead"],
        ["experiment=full_size/gpt2", "amp=off", "optimizer=sgd", "data.batch_size=8"],
        ["experiment=[full_size/resnet50,memory]", "trainer.channels_last=false", "compile.mode=default"],
    ],
)
def test_the_experiment_composes_to_the_run_that_was_raced(overrides: list[str], tmp_path: Path):
    write_tuned(tmp_path, "mine", overrides, ADVICE_WITH_JOB, GROUPS, "python train.py")
    tuned = composed([f"hydra.searchpath=[{tmp_path}]", "experiment=tuned/mine"])
    assert tuned == composed(overrides)


def test_the_file_says_what_changes_the_training(tmp_path: Path):
    advice = replace(ADVICE_WITH_JOB, changes_training=("amp=bf16",))
    path = write_tuned(tmp_path, "mine", ["amp=bf16"], advice, GROUPS, "python train.py")
    assert path.read_text().splitlines()[1].endswith("; changes the training: amp=bf16")


def test_a_setting_that_the_race_left_out_is_for_the_command(tmp_path: Path):
    overrides = ["model=resnet18", "~optimizer.weight_decay"]
    write_tuned(tmp_path, "mine", overrides, ADVICE_WITH_JOB, GROUPS, "python train.py")
    tuned = composed([f"hydra.searchpath=[{tmp_path}]", "experiment=tuned/mine", "~optimizer.weight_decay"])
    assert tuned == composed(overrides)


@pytest.mark.parametrize("typed", ["experiment=tuned/mine", "experiment=[memory,tuned/mine]"])
def test_a_race_does_not_write_the_experiment_that_it_begins_with(typed: str):
    with pytest.raises(ConfigError, match="give its result another name"):
        refuse_own_experiment("mine", [typed])
    refuse_own_experiment("other", [typed])


def test_a_folder_that_cannot_be_written_is_found_before_the_race(tmp_path: Path):
    refuse_unwritable(tmp_path / "new", "mine")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    (tmp_path / "experiment" / "tuned" / "mine.yaml").mkdir(parents=True)
    for into in (tmp_path / "file", tmp_path / "file" / "below", tmp_path):
        with pytest.raises(
            ConfigError, match=r"hydra\.sweeper\.into = .*: .*mine\.yaml cannot be written; give a config"
        ):
            refuse_unwritable(into, "mine")
    refuse_unwritable(tmp_path, "other")


def test_a_folder_without_the_permission_to_write_is_found_before_the_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As os.access says it: root may write everywhere."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        refuse_unwritable(tmp_path / "new", "mine")
