"""Callbacks by name, checkpoints as requested, and arguments of the Trainer."""

import csv

import pytest
from lightning.pytorch.callbacks import Callback

from trainkit.config.errors import ConfigError
from trainkit.results.files import read_epochs, read_row
from trainkit.training.run import run

QUICK = ("compile.mode=eager", "trainer.max_epochs=3", "trainer.limit_train_batches=6", "trainer.limit_val_batches=2")
EARLY = ("callbacks=early_stopping", "callbacks.early_stopping.patience=1", "callbacks.early_stopping.min_delta=100")


@pytest.mark.parametrize("monitor", ["val/loss", "val/accuracy", "train/loss"])
def test_early_stopping_ends_the_training_and_the_row_says_so(monitor, compose):
    row = run(compose(*QUICK, *EARLY, f"callbacks.early_stopping.monitor={monitor}"))
    assert (row.status, row.num_epochs) == ("ok", 2)
    assert row.callbacks == ["lightning.pytorch.callbacks.EarlyStopping"]


class Notes(Callback):
    def __init__(self, name):
        self.name = name

    def on_train_end(self, trainer, task):
        print("noted", self.name, trainer.global_step)


def test_several_callbacks_are_called_in_their_order_and_null_takes_one_out(compose, capsys):
    asked = [f"+callbacks.{name}={{_target_: {__name__}.Notes, name: {name}}}" for name in ("first", "second")]
    row = run(compose(*QUICK, *EARLY, *asked, "callbacks.early_stopping=null"))
    assert capsys.readouterr().out == "noted first 18\nnoted second 18\n"
    assert row.callbacks == [f"{__name__}.Notes"] * 2


@pytest.mark.parametrize(
    ("requested", "complaint"),
    [
        ("+callbacks.mine._target_=builtins.dict", "gives a dict; give a lightning.pytorch.Callback"),
        ("+callbacks.mine=3", r"callbacks.mine = 3: is no class with its arguments; each of callbacks has a name"),
        ("+callbacks.mine.x=3", "callbacks.mine._target_ = None: names no class"),
        ("+callbacks.mine._target_=lightning.pytorch.callbacks.EarlyStopping", r"EarlyStopping takes \(monitor, "),
        ("+callbacks.mine._target_=lightning.pytorch.callbacks.TQDMProgressBar", "progress"),
        ("+trainer.kwargs.detect_anomal=true", "did you mean detect_anomaly?"),
        ("+trainer.kwargs.precision=64", "use amp.precision"),
        ("+trainer.kwargs.max_epochs=4", "use trainer.max_epochs"),
        (
            "trainer.max_steps=9 +trainer.kwargs.min_epochs=1",
            r"would train beyond trainer\.max_steps = 9, .*; leave",
        ),
        ("trainer.max_steps=9 +trainer.kwargs.min_steps=10", r"is more than trainer\.max_steps = 9; leave out one"),
        ("trainer.val_check_interval=0", "expected a number above 0"),
    ],
)
def test_what_cannot_be_is_one_line(requested, complaint, compose):
    with pytest.raises(ConfigError, match=complaint) as raised:
        run(compose(*QUICK, *requested.split()))
    assert "\n" not in str(raised.value)


def test_averages_of_parameters_need_them_whole(compose):
    average = "+callbacks.average._target_=lightning.pytorch.callbacks.WeightAveraging"
    with pytest.raises(
        ConfigError, match=r"^callbacks\.average: averages all parameters in each step, of which a rank"
    ):
        run(compose("ddp.strategy=compiled", "ddp.shard_optimizer=true", average))


def test_arguments_of_the_trainer_reach_it_and_the_row(compose, tmp_path):
    row = run(compose(*QUICK, "+trainer.kwargs.check_val_every_n_epoch=2", "trainer.deterministic=true"))
    assert [record.val_time_s is None for record in read_epochs(tmp_path / "run")] == [True, False, True]
    assert (row.trainer_kwargs, row.deterministic) == ({"check_val_every_n_epoch": 2}, True)
    assert read_row(tmp_path / "run") == row


def test_validations_inside_of_an_epoch_and_the_best_checkpoints_of_them(compose, tmp_path):
    asked = ("trainer.val_check_interval=2", "checkpoint.save_top_k=2", "checkpoint.monitor=val/accuracy")
    row = run(compose(*QUICK, *asked, "checkpoint.mode=max", "trainer.max_epochs=1", "logger=csv"))
    assert row.val_check_interval == 2
    names = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert names < {"last.ckpt", "best-0-2.ckpt", "best-0-4.ckpt", "best-0-6.ckpt"}
    assert len(names) == 3
    with (tmp_path / "run" / "csv" / "metrics.csv").open() as file:
        assert [float(line["epoch/val_time_s"]) for line in csv.DictReader(file)] == [row.epoch_val_time_s]


def test_a_run_writes_no_checkpoint_if_none_is_requested(compose, tmp_path):
    row = run(compose(*QUICK, "checkpoint.save_top_k=0", "checkpoint.save_last=false"))
    assert (row.status, row.num_epochs) == ("ok", 3)
    assert list(tmp_path.rglob("*.ckpt")) == []


@pytest.mark.parametrize("name", ["simple", "advanced", "pytorch"])
def test_a_profiler_has_an_epoch_of_its_own(name, compose, tmp_path):
    row = run(compose(*QUICK, "trainer.max_epochs=1", f"trainer.profiler={name}"))
    assert (row.status, row.num_epochs) == ("ok", 1)
    assert any(name in path.name for path in (tmp_path / "run" / "profile").iterdir())
