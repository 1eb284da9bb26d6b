"""Real races: jobs in fresh processes, planted settings, the second start, what is left behind."""

import os
import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import forked
from tests.conftest import ROOT
from tests.processes import wait_until
from trainkit.results.ledger import LEDGER_FILE, Measurement, read_measurements
from trainkit.results.runs import read_rows

BUDGET_S = 600
PLANTED = Path(__file__).parent / "planted.py"
RACE = (
    "-m", "hydra/sweeper=race", "sweep=planted", f"hydra.sweeper.budget_min={BUDGET_S // 60}",
    "hydra.sweeper.job_steps=25", "hydra.sweeper.into=mine", "hydra.launcher.timeout_s=25",
    "model=own", "model._target_=planted.Net", "+model.inputs=images", "data=digits",
    "compile.mode=default,reduce-overhead", "compile.backend=eager,planted_wrong,planted_oom,planted_hang",
    "compile.scope=net", "trainer.channels_last=false,true", "optimizer.foreach=null",
)  # fmt: skip
WRONG, OOM, HANG = "compile.backend=planted_wrong", "compile.backend=planted_oom", "compile.backend=planted_hang"
PIECES = "trainer.channels_last=true"


@pytest.mark.long
def test_planted_settings_are_not_chosen_and_are_said_and_nothing_is_measured_twice(
    train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The network is ten times as fast compiled: the race is decided however much a machine disturbs it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # threads that wait for each other scatter with the machine's load
    shutil.copy(PLANTED, tmp_path)
    done = train(*RACE, timeout_s=BUDGET_S + 60)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "sweeps" / "planted"
    jobs = read_measurements(folder)
    reasons = {job.overrides[-1]: job.reason for job in jobs if job.excludes}
    assert reasons.keys() == {WRONG, OOM, HANG, PIECES}
    assert reasons[WRONG].startswith("numbers differ from eager: losses differ from float64 by ")
    assert reasons[OOM].startswith("oom: ")
    assert reasons[HANG] == "timeout: stopped after 25 s (hydra.launcher.timeout_s)"
    assert reasons[PIECES] == "requested default, effective eager: nothing was compiled"
    assert sorted(job.run_id for job in jobs) == sorted(row.run_id for row in read_rows(folder))
    assert not list(folder.rglob("checkpoints"))

    lines = done.stdout.splitlines()
    assert lines[0] == "race planted: 6 settings at first, 10:00 in all"
    assert lines[1].endswith("left: eager: ok: step " + lines[1].rpartition("step ")[2])
    for line, job in zip(lines[1:], jobs, strict=False):  # each line has the time at the end of its job
        minutes, seconds = re.match(r"\[(\d+):(\d+) of 10:00\]", line).groups()
        assert 60 * int(minutes) + int(seconds) == pytest.approx(job.used_s, abs=2)
    for reason in (
        "numbers differ from eager",
        "oom: OutOfMemoryError",
        "timeout: stopped",
        "nothing was compiled",
        "graph breaks: 1",
    ):
        assert reason in done.stdout
    sentence = next(line for line in lines if line.startswith("default, backend=eager: "))
    guarantee = r" of eager; with 95 % confidence nothing tried (that is stable )?is (more than .* )?better"
    assert re.search(guarantee, sentence)

    tuned = (tmp_path / "mine" / "experiment" / "tuned" / "planted.Net-digits.yaml").read_text()
    assert f"# {sentence}" in tuned.splitlines()
    page = (folder / "race.html").read_text()
    assert "Round by round" in page
    assert "modes belong to the backend inductor" in page

    again = train(*RACE)
    assert again.returncode == 0, again.stderr
    assert len(read_measurements(folder)) == len(jobs)
    words = ["--config-dir", "mine", "experiment=tuned/planted.Net-digits", "logger=none"]
    trained = train(*words, "trainer.max_epochs=1")
    assert trained.returncode == 0, trained.stderr
    row = next(row for row in read_rows(tmp_path / "runs") if row.sweep_id is None)
    assert (row.compile_mode, row.compile_backend, row.compile_scope) == ("default", "eager", "net")


def test_calls_have_no_steps_of_training(tmp_path):
    words = ("-m", "hydra/sweeper=race", "model=simple_net", "hydra.sweeper.steps=1000")
    done = forked.python(ROOT / "scripts" / "bench.py", *words, cwd=tmp_path)
    line = "hydra.sweeper.steps = 1000: calls have no steps of training; leave it out\n"
    assert (done.returncode, done.stderr) == (2, line)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["hydra.sweeper.budget_min=0"], "hydra.sweeper.budget_min = 0.0: expected a number above 0"),
        ([f"hydra.sweeper.steps={'9' * 400}"], f"hydra.sweeper.steps = {'9' * 400}: expected a number above 0, and at"),
        (["hydra.sweeper.memory_gib=inf"], "hydra.sweeper.memory_gib = inf: expected a number above 0, and at most"),
        (["model.width=4,8"], "model.width = 4,8: is other work, and a race compares ways to do the same"),
        (["hydra.launcher.repeats=3"], "hydra.launcher.repeats, .parallel: a race repeats its jobs as far as needed"),
        (
            ["ddp.strategy=compiled", "hydra.launcher.nproc_per_node=2"],
            "ddp.strategy = compiled: averages gradients within the compiled graph, and compile.mode = eager has none; "
            "use ddp; a race begins with eager, unless you give compile.mode one value",
        ),
        (["hydra.launcher.scaling=strong"], "hydra.launcher.scaling = strong: a race has one number of processes; set"),
        (["hydra.sweeper.into=/dev/null"], "hydra.sweeper.into = /dev/null: /dev/null/experiment/tuned/simple_net-"),
        (["compile.mode=eager,fastest"], "compile.mode = fastest: expected one of eager, default"),
    ],
)
def test_what_was_typed_wrongly_is_one_line(words: list[str], complaint: str, train):
    done = train("-m", "hydra/sweeper=race", "model=simple_net", "logger=none", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(complaint)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [([], "compile.mode = fastest: "), (["compile.mode=eager"], "hydra.sweeper.into = /dev/null: ")],
)
def test_the_command_line_goes_before_the_params_of_an_experiment(words: list[str], complaint: str, tmp_path, train):
    (tmp_path / "experiment").mkdir()
    params = "# @package _global_\nhydra: {sweeper: {params: {compile.mode: 'eager,fastest'}}}\n"
    (tmp_path / "experiment" / "narrow.yaml").write_text(params)
    race = ("-m", f"--config-dir={tmp_path}", "hydra/sweeper=race", "experiment=narrow", "model=simple_net")
    done = train(*race, "logger=none", "hydra.sweeper.into=/dev/null", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(complaint)


def first_jobs(words: Sequence[str], folder: Path, number: int) -> list[Measurement]:
    """Run a race until it has measured so many jobs."""
    ledger = folder / LEDGER_FILE

    def has_measured() -> bool:
        return ledger.exists() and len(ledger.read_text().splitlines()) > number

    def interrupt(race: int) -> None:
        wait_until(has_measured)
        os.kill(race, signal.SIGINT)

    done = forked.python(ROOT / "train.py", *words, cwd=folder.parents[2], on_start=forked.beside(interrupt))
    assert done.returncode == 130, done.stdout + done.stderr
    *_, best_so_far, _, last_line = done.stdout.splitlines()
    assert "best so far" in best_so_far or "stay with eager" in best_so_far
    assert last_line == "interrupted; the same command goes on"
    return read_measurements(folder)[:number]


def test_the_largest_batch_that_fits_is_found_on_two_ranks(tmp_path: Path):
    """Each of two gloo ranks has 90 samples: 64 fit, 128 and 96 do not, 80 do."""
    words = [
        "-m", "hydra/sweeper=race", "sweep=sizes", "hydra.sweeper.budget_min=20", "hydra.sweeper.job_steps=20",
        "hydra.launcher.nproc_per_node=2", "model=simple_net", "data=digits", "data.val_fraction=0.9",
        "data.batch_size=auto", "compile.mode=default", "compile.backend=aot_eager", "compile.scope=net",
        "trainer.channels_last=false", "optimizer.foreach=null", "ddp.strategy=auto", "ddp.optimize_ddp=true",
        "ddp.static_graph=false", "ddp.bucket_cap_mb=25", "ddp.shard_optimizer=false", "trainer.accelerator=cpu",
    ]  # fmt: skip
    jobs = first_jobs(words, tmp_path / "runs" / "sweeps" / "sizes", 4)
    sizes = [(job.batch_size, job.status) for job in jobs]
    assert sizes == [(64, "ok"), (128, "failed"), (96, "failed"), (80, "ok")], [job.reason for job in jobs]
    assert "digits has 180 training samples, less than one batch for 2 process(es)" in jobs[1].reason
    largest = jobs[-1]
    assert largest.samples_per_s == pytest.approx(2 * 80 / largest.step_time_ms * 1e3)


@pytest.mark.long
def test_ranks_race_with_each_strategy_that_averages_their_gradients(tmp_path: Path):
    """Two gloo ranks, until each strategy has a job. FSDP2 goes with compiled blocks alone, shares of the optimizer's
    work with gradients that are averaged in the graph."""
    words = [
        "-m", "hydra/sweeper=race", "sweep=ranks", "hydra.sweeper.budget_min=20", "hydra.sweeper.job_steps=8",
        "hydra.launcher.nproc_per_node=2", "model=mini_transformer", "model.depth=2", "data=synthetic",
        "data.batch_size=8", "trainer.accelerator=cpu", "logger=none", "compile.mode=default",
        "compile.backend=aot_eager", "compile.scope=step,blocks", "ddp.strategy=auto,compiled,fsdp2",
        "ddp.optimize_ddp=true", "ddp.static_graph=false", "ddp.bucket_cap_mb=25", "ddp.shard_optimizer=false,true",
        "optimizer.foreach=null",
    ]  # fmt: skip
    folder = tmp_path / "runs" / "sweeps" / "ranks"
    measured = {job.run_id: job for job in first_jobs(words, folder, 5)}
    rows = [row for row in read_rows(folder) if row.run_id in measured]
    assert [row.error for row in rows] == [None] * 5
    assert {row.world_size for row in rows} == {2}
    shares = "ddp.shard_optimizer=true"
    settings = {(row.strategy, row.compile_scope, shares in row.overrides) for row in rows}
    assert settings == {
        ("ddp", "step", False),
        ("ddp", "blocks", False),
        ("compiled", "step", False),
        ("compiled", "step", True),
        ("fsdp2", "blocks", False),
    }
