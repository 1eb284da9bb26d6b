"""The LightningModule: steps, epochs and validation."""

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from tests.networks import network, partly_ignored
from trainkit.results.files import read_epochs
from trainkit.training.run import run


def test_max_steps_ends_inside_an_epoch_and_what_was_not_validated_has_no_figures(compose, tmp_path):
    seen = []
    row = run(compose("compile.mode=eager", "trainer.max_steps=25", "trainer.max_epochs=5"), on_epoch=seen.append)
    assert (row.status, row.num_steps, [record.num_steps for record in seen]) == ("ok", 25, [22, 3])
    assert (row.num_epochs, row.epoch_train_time_s) == (1, seen[0].train_time_s)
    checkpoint = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == 25


class Stops(Callback):
    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        trainer.should_stop |= batch_idx == 7


STOPS = f"+callbacks.stops._target_={__name__}.Stops"


@pytest.mark.parametrize("requested", ["trainer.max_steps=8", STOPS])
def test_of_an_epoch_that_is_cut_short_there_are_times_of_steps_and_none_of_an_epoch(requested, compose):
    seen = []
    row = run(compose("compile.mode=eager", requested, "trainer.max_epochs=3"), on_epoch=seen.append)
    assert (row.status, row.num_steps, [record.num_steps for record in seen]) == ("ok", 8, [8])
    assert (row.num_epochs, row.epoch_train_time_s) == (0, None)
    assert min(row.step_time_ms_p50, row.step_overhead_ms, row.epoch_val_time_s, row.val_loss) > 0


def test_a_run_that_is_stopped_at_the_end_of_an_epoch_has_trained_it(compose):
    row = run(compose("compile.mode=eager", STOPS, "trainer.limit_train_batches=8", "trainer.max_epochs=3"))
    assert (row.num_steps, row.num_epochs) == (8, 1)
    assert row.epoch_train_time_s > 0


def test_the_fewest_steps_of_lightning_hold_against_a_callback_that_stops(compose):
    asked = ("compile.mode=eager", "trainer.max_epochs=3", STOPS)
    assert run(compose(*asked, "+trainer.kwargs.min_steps=30", "trainer.max_steps=30")).num_steps == 30


def test_a_step_with_accumulation_is_all_its_batches_and_the_optimizer(compose, tmp_path):
    row = run(compose("compile.mode=eager", "trainer.accumulate_grad_batches=4", "trainer.max_epochs=3"))
    assert row.num_steps == 3 * 6  # 22 batches: five steps of four, and one of two, which is not steady
    assert row.num_steady_steps + row.num_warmup_steps == 3 * 5
    assert [record.num_samples for record in read_epochs(tmp_path / "run")] == [22 * 64] * 3


QUICK = ("trainer.max_epochs=2", "trainer.limit_train_batches=6")


def test_validation_counts_every_sample_once(compose):
    row = run(compose("compile.mode=eager", "data.batch_size=50", "trainer.max_epochs=1"))
    assert round(row.val_accuracy * 359, 6) == round(row.val_accuracy * 359)  # 359 of the 1,797 digits


def test_targets_that_do_not_count_are_in_no_loss_and_no_accuracy_even_where_a_batch_has_no_others(compose, tmp_path):
    """Four of ten, two of which are all of a batch."""
    rows = []
    for number, ignored in enumerate(([2, 3, 6, 9], [])):
        words = (*partly_ignored(ignored), "compile.mode=eager", "trainer.max_epochs=1", "optimizer.lr=1e-9")
        rows.append(run(compose(*words, run_dir=tmp_path / str(number))))
    partly, whole = rows
    assert (partly.status, partly.num_val_targets, whole.num_val_targets) == ("ok", 6, 10)
    assert partly.val_loss == pytest.approx(whole.val_loss, rel=0.2)
    assert round(partly.val_accuracy * 6, 6) == round(partly.val_accuracy * 6)


def test_a_validation_whose_targets_do_not_count_has_no_loss(compose):
    words = (*partly_ignored(list(range(10))), "compile.mode=eager", "trainer.max_epochs=1")
    row = run(compose(*words))
    assert (row.status, row.val_loss, row.val_accuracy, row.num_val_targets) == ("ok", None, None, 0)


def test_an_epoch_that_was_not_validated_has_no_figures_of_an_earlier_validation(compose, tmp_path):
    every_second = "+trainer.kwargs.check_val_every_n_epoch=2"
    row = run(compose("compile.mode=eager", "trainer.max_epochs=3", "trainer.limit_train_batches=6", every_second))
    first, second, third = read_epochs(tmp_path / "run")
    assert second.val_accuracy == second.val_metric
    for record in (first, third):
        assert (record.val_loss, record.val_metric, record.val_accuracy) == (None, None, None)
    assert (row.val_loss, row.val_metric) == (second.val_loss, second.val_metric)


def test_a_run_without_validation_has_no_validation_figures(compose):
    row = run(compose("compile.mode=eager", "trainer.limit_val_batches=0", *QUICK))
    assert (row.status, row.val_loss, row.val_accuracy, row.epoch_val_time_s) == ("ok", None, None, None)


def test_what_was_trained_is_in_the_row_of_a_validation_that_fails(compose, capsys):
    row = run(compose(network("FailsInValidation"), "compile.mode=eager", "trainer.max_epochs=2"))
    assert row.status == "failed"
    assert row.error.startswith("ArithmeticError: nothing is validated (at ")
    assert row.num_steps == 22
    assert 0 < row.train_loss < 10
