"""The LightningModule: steps, epochs and validation."""

import torch

from tests.networks import network
from trainkit.results.files import read_epochs
from trainkit.training.run import run


def test_max_steps_ends_inside_an_epoch_and_what_was_not_validated_has_no_figures(compose, tmp_path):
    seen = []
    row = run(compose("compile.mode=eager", "trainer.max_steps=25", "trainer.max_epochs=5"), on_epoch=seen.append)
    assert (row.status, row.num_steps, [record.num_steps for record in seen]) == ("ok", 25, [22, 3])
    checkpoint = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == 25


def test_a_step_with_accumulation_is_all_its_batches_and_the_optimizer(compose, tmp_path):
    row = run(compose("compile.mode=eager", "trainer.accumulate_grad_batches=4", "trainer.max_epochs=3"))
    assert row.num_steps == 3 * 6  # 22 batches: five steps of four, and one of two, which is not steady
    assert row.num_steady_steps + row.num_warmup_steps == 3 * 5
    assert [record.num_samples for record in read_epochs(tmp_path / "run")] == [22 * 64] * 3


QUICK = ("trainer.max_epochs=2", "trainer.limit_train_batches=6")


def test_validation_counts_every_sample_once(compose):
    row = run(compose("compile.mode=eager", "data.batch_size=50", "trainer.max_epochs=1"))
    assert round(row.val_accuracy * 359, 6) == round(row.val_accuracy * 359)  # 359 of the 1,797 digits


def test_a_run_without_validation_has_no_validation_figures(compose):
    row = run(compose("compile.mode=eager", "trainer.limit_val_batches=0", *QUICK))
    assert (row.status, row.val_loss, row.val_accuracy, row.epoch_val_time_s) == ("ok", None, None, None)


def test_what_was_trained_is_in_the_row_of_a_validation_that_fails(compose, capsys):
    row = run(compose(network("FailsInValidation"), "compile.mode=eager", "trainer.max_epochs=2"))
    assert row.status == "failed"
    assert row.error.startswith("ArithmeticError: nothing is validated (at ")
    assert row.num_steps == 22
    assert 0 < row.train_loss < 10
