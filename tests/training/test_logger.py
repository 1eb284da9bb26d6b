"""Several loggers at once, and those whose packages need not be installed."""

from importlib.util import find_spec

import pytest

from tests.processes import wait_until
from trainkit.config.errors import ConfigError
from trainkit.training.run import run

QUICK = ("compile.mode=eager", "trainer.max_epochs=2", "trainer.limit_train_batches=6", "trainer.log_every_n_steps=3")


def test_two_loggers_get_the_same_figures_and_wandb_its_tags(compose, tmp_path):
    labels = ("logger.wandb.tags=[first,look]", "logger.wandb.notes=why")
    config = compose(*QUICK, "logger=[csv,wandb]", *labels)
    assert (config.logger["wandb"]["tags"], config.logger["wandb"]["notes"]) == (["first", "look"], "why")
    assert run(config).status == "ok"
    header = (tmp_path / "run" / "csv" / "metrics.csv").read_text().splitlines()[0]
    assert {"train/loss", "val/loss", "step/loss", "step/lr", "step/grad_norm"} < set(header.split(","))
    (recorded,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    expected = (b"step/grad_norm", b"train/loss", b"look", b"why")
    for written in expected:  # W&B's own process writes the file, on a busy machine after the run has ended
        wait_until(lambda written=written: written in recorded.read_bytes())


def test_a_logger_without_a_name_and_what_is_no_logger_are_one_line(compose):
    with pytest.raises(ConfigError, match=r"logger\._target_ = x: is no class .* has a name: logger\.NAME\._target_"):
        compose("+logger._target_=x")
    with pytest.raises(ConfigError, match="gives a dict; give a Logger"):
        run(compose(*QUICK, "+logger.mine._target_=builtins.dict"))


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard(compose, tmp_path):
    assert run(compose(*QUICK, "logger=tensorboard")).status == "ok"
    (events,) = (tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*")
    assert b"step/grad_norm" in events.read_bytes()


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
def test_mlflow(compose, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert run(compose(*QUICK, "logger=mlflow")).status == "ok"
    assert b"step/grad_norm" in (tmp_path / "runs" / "mlflow.db").read_bytes()
