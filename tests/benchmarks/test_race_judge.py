"""A race beside its judge: the spaces as they are, rows made by hand, and a session that is interrupted."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from benchmarks import race_judge
from benchmarks.race_judge import JudgedSpace, compare, read_space, seconds_file
from tests.conftest import CONF
from tests.sweeps import ROW
from trainkit.config.complaints import compose_typed
from trainkit.config.factors import conditions_of, narrow, read_factors, split_typed
from trainkit.results.files import write_row
from trainkit.results.ledger import Ledger, Measurement, RaceIdentity

GPU_SPACES = ("gpt2", "bert", "vit_b16", "resnet50", "timm")
BETAS = "+optimizer.betas"
SPACE = JudgedSpace(
    name="small",
    fixed=["model=simple_net", "data=digits", "trainer.accelerator=cpu", "compile.backend=eager"],
    factors={
        "compile.mode": ["default"],
        "optimizer.foreach": ["null", "true"],
        BETAS: ["[0.9,0.999]", "[0.9,0.95]"],
    },
)
DEVICE = "AMD EPYC"


@pytest.mark.parametrize("name", [*GPU_SPACES, "digits"])
def test_each_value_of_a_space_composes_and_a_race_over_it_tries_no_other(name: str):
    space = read_space(name)
    if name in GPU_SPACES:
        assert 12 <= len(space.settings) <= 16
    config = compose_typed([*space.fixed, "compile.mode=eager"], CONF, run_dir="")
    for setting, values in space.factors.items():
        for value in values:
            compose_typed([*space.fixed, f"{setting}={value}"], CONF, run_dir="")
    typed = split_typed(race_judge.race_words(space))
    conditions = conditions_of(config, num_gpus=int(name in GPU_SPACES), num_processes=1)
    varied, _ = narrow(read_factors([CONF]), typed, conditions, "train")
    raced = set()
    for factor in varied:
        if not any(value.saves_memory for value in factor.values.values()):  # these wait until memory is short
            raced.add(factor.setting)
    assert raced == set(space.factors)


def judge(folder: Path, step_times_ms: dict[tuple[str, ...], Sequence[float]], **fields) -> None:
    """Write the rows of a judge, with the overrides as Hydra's sweeps write them."""
    number = 0
    for overrides, times_ms in step_times_ms.items():
        for repeat, step_ms in enumerate(times_ms):
            row = replace(ROW, repeat=repeat, overrides=[*SPACE.fixed, *overrides], device_name=DEVICE)
            run_dir = folder / "small-judge" / f"{number:03d}-job"
            run_dir.mkdir(parents=True)
            write_row(run_dir, replace(row, step_time_ms=step_ms, **fields))
            number += 1
    seconds_file(folder, SPACE).write_text("700.0\n300.0\n")


def race(folder: Path, **settings) -> None:
    """Write what a race leaves that has chosen these settings."""
    (folder / "small-race").mkdir()
    ledger = Ledger(folder / "small-race", RaceIdentity("simple_net", "digits", "", [], 100, DEVICE, "2.13.0", ""))
    first = Measurement([], 0, False, "r", "failed", wall_s=10.0, used_s=10.0)  # before it knew its device
    ledger.append(first)
    ledger.append(replace(first, repeat=1, status="ok", used_s=100.0, figure=1.0, device_name=DEVICE))
    path = folder / "experiment" / "tuned" / "small.yaml"
    path.parent.mkdir(parents=True)
    config = {"defaults": [{"override /model": "simple_net"}, {"override /data": "digits"}], **settings}
    path.write_text(f"# @package _global_\n{OmegaConf.to_yaml(config)}")


EAGER = {
    ("compile.mode=eager", f"optimizer.foreach={foreach}", f"{BETAS}=[0.9,{beta}]"): [8.0, 8.1, 8.2]
    for foreach in ("null", "True")
    for beta in ("0.999", "0.95")
}
COMPILED = {
    ("compile.mode=default", "optimizer.foreach=null", f"{BETAS}=[0.9,0.999]"): [4.0, 4.1, 4.2],
    ("compile.mode=default", "optimizer.foreach=null", f"{BETAS}=[0.9,0.95]"): [4.05, 4.15, 4.25],
    ("compile.mode=default", "optimizer.foreach=True", f"{BETAS}=[0.9,0.999]"): [5.0, 5.1, 5.2],
    ("compile.mode=default", "optimizer.foreach=True", f"{BETAS}=[0.9,0.95]"): [5.0, 5.1, 5.2],
}


def test_a_choice_within_the_tolerance_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    judge(tmp_path, EAGER | COMPILED)
    race(tmp_path, compile={"mode": "default"}, optimizer={"foreach": None, "betas": [0.9, 0.95]})
    assert compare(SPACE, tmp_path)
    assert capsys.readouterr().out == (
        "small on AMD EPYC: compile.mode=default optimizer.betas=[0.9, 0.95] optimizer.foreach=null (decided); "
        "2 jobs, 100 s, 10.0 % of the judge's 1000 s; judge: 8 of 8 settings; "
        "best compile.mode=default optimizer.betas=[0.9, 0.999] optimizer.foreach=null 4.100 ms, chosen 1.2 % slower\n"
    )


def test_eager_and_a_true_value_can_be_the_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    judge(tmp_path, EAGER | COMPILED)
    race(tmp_path, compile={"mode": "eager"}, optimizer={"foreach": True, "betas": [0.9, 0.999]})
    assert not compare(SPACE, tmp_path)
    said = capsys.readouterr().out
    assert "compile.mode=eager optimizer.betas=[0.9, 0.999] optimizer.foreach=true (decided)" in said
    assert said.endswith("chosen 97.6 % slower\n")


def test_a_judge_that_has_not_ended_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    race(tmp_path, compile={"mode": "default"}, optimizer={"foreach": None, "betas": [0.9, 0.95]})
    assert not compare(SPACE, tmp_path)
    assert capsys.readouterr().out == "small: the judge has no setting with 3 repeats on AMD EPYC\n"
    short = {overrides: times_ms[:2] for overrides, times_ms in COMPILED.items() if "[0.9,0.95]" in overrides[-1]}
    judge(tmp_path, COMPILED | short)
    assert not compare(SPACE, tmp_path)
    assert "judge: 2 of 8 settings; the judge has no figure of the choice" in capsys.readouterr().out


def test_a_setting_that_fails_is_judged(tmp_path: Path):
    judge(tmp_path, EAGER | COMPILED)
    for path in sorted((tmp_path / "small-judge").iterdir())[:3]:
        write_row(path, replace(ROW, status="oom", overrides=[*SPACE.fixed, *next(iter(EAGER))], device_name=None))
    race(tmp_path, compile={"mode": "default"}, optimizer={"foreach": None, "betas": [0.9, 0.999]})
    assert compare(SPACE, tmp_path)


def test_without_an_ended_race_there_is_nothing_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert not compare(SPACE, tmp_path)
    assert capsys.readouterr().out == f"small: no race in {tmp_path} has ended with a choice\n"


def test_rows_of_another_gpu_are_seen_before_a_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    judge(tmp_path, EAGER)
    on_gpu = replace(SPACE, fixed=SPACE.fixed[:2])
    assert race_judge.other_devices(SPACE, tmp_path) == set()
    monkeypatch.setattr(race_judge, "gpu_names", lambda gpus: ["NVIDIA H200"])
    assert race_judge.other_devices(on_gpu, tmp_path) == {DEVICE}


def test_a_judge_is_interrupted_after_its_minutes(tmp_path: Path):
    assert race_judge.run_judge(SPACE, tmp_path, minutes=0.1) == race_judge.INTERRUPTED
    (session,) = seconds_file(tmp_path, SPACE).read_text().split()
    assert float(session) > 0


def test_a_judge_runs_a_job_on_each_gpu_and_counts_the_seconds_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sweeps = []

    def run_sweep(words, limit_s):
        sweeps.append(words)
        time.sleep(0.1)
        return 0

    monkeypatch.setattr(race_judge, "run_sweep", run_sweep)
    monkeypatch.setattr(race_judge, "visible_gpus", lambda: ["0", "1"])
    on_gpu = replace(SPACE, fixed=SPACE.fixed[:2])
    assert race_judge.run_judge(on_gpu, tmp_path, minutes=1) == 0
    assert ["hydra.launcher.parallel=auto" in words for words in sweeps] == [True, True]
    assert float(seconds_file(tmp_path, on_gpu).read_text()) >= 0.4


def test_a_race_is_interrupted_after_a_session(tmp_path: Path):
    assert race_judge.run_race(SPACE, tmp_path, minutes=5, session_min=0.1) == race_judge.INTERRUPTED
    assert not (tmp_path / "experiment").exists()
