"""Sweepers that search, and launchers of others: what they get of each job, and how their sweeps end."""

from dataclasses import replace

import pytest
from omegaconf import OmegaConf

from tests.sweeps import make_row
from trainkit.config.errors import ConfigError
from trainkit.results.optimized import optimized_value
from trainkit.results.runs import read_rows
from trainkit.sweep.search import best_label, check_direction

TINY = ["model=simple_net", "logger=none", "compile.mode=eager", "trainer.max_epochs=1"]


def hydra_of(direction: str):
    return OmegaConf.create({"sweeper": {"_target_": "a.Sweeper", "direction": direction}})


@pytest.mark.parametrize(
    ("direction", "metric", "problem"),
    [
        ("maximize", "val_loss", "val_loss, of which lower is better; use hydra.sweeper.direction=minimize"),
        ("minimize", "val_accuracy", "val_accuracy, of which higher is better; use hydra.sweeper.direction=maximize"),
        ("minimize", "acc", "acc: expected a measured column of the row; did you mean val_accuracy?"),
        ("minimize", "model", "model: expected a measured column of the row; "),
        ("minimize", "val_loss", None),
        ("maximize", "samples_per_s", None),
    ],
)
def test_a_sweeper_searches_in_the_direction_of_the_metric(direction, metric, problem):
    if problem is None:
        check_direction(hydra_of(direction), metric)
        return
    with pytest.raises(ConfigError, match=f"optimized_metric = {problem}".replace("?", r"\?")):
        check_direction(hydra_of(direction), metric)


def test_a_setting_has_the_median_of_its_repeats_or_the_reason_why_not():
    rows = [make_row("eager", 1.0, val_loss=loss, run_id=f"s/{loss}") for loss in (0.5, 0.25, 0.75)]
    assert optimized_value(rows, "val_loss") == 0.5
    failed = replace(rows[0], status="oom", error="no memory")
    with pytest.raises(ValueError, match=r"^s/0\.5: no memory$"):
        optimized_value([*rows, failed], "val_loss")
    with pytest.raises(ValueError, match=r"^s/0\.5: ok, without energy_per_step_j$"):
        optimized_value(rows, "energy_per_step_j")


def test_the_best_run_is_named_by_what_tells_it_from_the_others():
    rows = []
    for lr, loss in ((0.1, 0.5), (0.2, 0.25)):
        rows.append(make_row("eager", 1.0, val_loss=loss, overrides=["model=a", f"optimizer.lr={lr}"]))
    assert best_label(rows, "val_loss") == "best of 2 runs: val_loss 0.2500 (lower is better) with optimizer.lr=0.2"
    assert best_label(rows, "energy_per_step_j") == "none of 2 runs has energy_per_step_j"


SWEEP = ("-m", "sweep=s", *TINY)


def test_a_job_that_fails_in_a_shared_process_does_not_stop_the_others(train, tmp_path):
    done = train(*SWEEP, "hydra/launcher=basic", "data.batch_size=100000,64")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("data.batch_size = 100000: ")
    assert [(row.status, row.batch_size) for row in read_rows(tmp_path)] == [("failed", 100000), ("ok", 64)]
    assert done.stdout.splitlines()[-2:] == [
        "jobs shared processes: hydra/launcher=trainkit measures step, compile time and memory of each apart",
        "rows: runs/sweeps/s; compare them: python -m trainkit report runs/sweeps/s",
    ]


def test_optuna_finds_a_learning_rate_on_the_digits(train, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="hydra-optuna-sweeper is not installed")
    words = "optimizer.lr=tag(log,interval(0.00001,0.1))", "hydra.sweeper.n_trials=4", "hydra.sweeper.sampler.seed=1"
    done = train(*SWEEP, "hydra/sweeper=optuna", *words)
    assert done.returncode == 0, done.stderr
    best, end = done.stdout.splitlines()[-2:]
    losses = [row.val_loss for row in read_rows(tmp_path)]
    assert len(losses) == 4
    assert best.startswith(f"best of 4 runs: val_loss {min(losses):.4f} (lower is better) with optimizer.lr=")
    assert end == "rows: runs/sweeps/s; compare them: python -m trainkit report runs/sweeps/s"
    found = OmegaConf.load(tmp_path / "runs" / "sweeps" / "s" / "optimization_results.yaml")
    assert found.best_value == min(losses)


def test_the_joblib_launcher_ends_with_the_line_about_comparing(train, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="hydra-joblib-launcher is not installed")
    done = train(*SWEEP, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=0,1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "rows: runs/sweeps/s; compare them: python -m trainkit report runs/sweeps/s"
    assert [row.status for row in read_rows(tmp_path)] == ["ok", "ok"]
