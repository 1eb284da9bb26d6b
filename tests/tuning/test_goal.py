"""The figure of a row that a race compares, and its samples a second."""

from dataclasses import replace

import pytest

from tests.sweeps import ROW
from trainkit.training.run import run
from trainkit.tuning.goal import Goal, throughput

SIZE = 32
TRAINED = ("model=simple_net", f"data.batch_size={SIZE}", "compile.mode=eager", "trainer.max_epochs=9")


@pytest.mark.parametrize(
    ("accumulated", "in_epoch", "batches_per_step"),
    [(1, 8, 1), (4, 8, 4), (4, 9, 4), (4, 3, 3)],
    ids=["none", "whole steps", "a short last step", "an epoch shorter than a step"],
)
def test_a_step_has_the_samples_of_all_the_batches_that_it_accumulates(
    accumulated: int, in_epoch: int, batches_per_step: int, compose
):
    lengths = [f"trainer.accumulate_grad_batches={accumulated}", f"trainer.limit_train_batches={in_epoch}"]
    row = run(compose(*TRAINED, *lengths))
    num_samples = batches_per_step * SIZE
    assert row.samples_per_step == num_samples
    assert throughput(row) == pytest.approx(1000 * num_samples / row.step_time_ms)
    assert Goal(batch_size=SIZE).figure(row, 0.0) == pytest.approx(row.step_time_ms / num_samples)


def test_a_batch_so_large_that_an_epoch_ends_before_its_step_is_not_the_fastest():
    """Of 4 batches of 64 and 2 of 128 each sample takes 0.5 ms: the epoch has no more batches of 128."""
    small = replace(ROW, batch_size=64, step_time_ms=128.0, samples_per_step=256.0)
    large = replace(ROW, batch_size=128, step_time_ms=128.0, samples_per_step=256.0)
    goal = Goal(batch_size=64)
    assert goal.figure(small, 0.0) == goal.figure(large, 0.0) == 0.5
    assert throughput(small) == throughput(large) == 2000


def test_rows_without_the_samples_of_a_step_have_those_of_a_batch_of_each_process():
    row = replace(ROW, batch_size=64, step_time_ms=10.0, world_size=2)
    assert throughput(row) == 12_800
    assert throughput(replace(row, batch_size=None, samples_per_s=900.0)) == 900.0
