"""The meters read back what is known: a sleep, an allocation, a wait for data, a compile."""

import time

import pytest
import torch

from trainkit import meters
from trainkit.meters import EpochCost, Meters, Step, Stopwatch, percentile, slowest
from trainkit.run import run

QUICK = ("compile.mode=eager", "trainer.max_epochs=2", "trainer.limit_train_batches=8")


class SleepyLoader:
    """A loader that needs a known time for each batch."""

    def __init__(self, loader, seconds):
        self.loader, self.seconds, self.sampler = loader, seconds, loader.sampler

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for batch in self.loader:
            time.sleep(self.seconds)
            yield batch


def test_a_slow_loader_is_a_wait_for_data(compose, monkeypatch):
    from trainkit.data.digits import Digits

    plain = Digits.train_dataloader
    monkeypatch.setattr(Digits, "train_dataloader", lambda self: SleepyLoader(plain(self), 0.05))
    row = run(compose(*QUICK))
    period_ms = 1e3 * 64 / row.samples_per_s  # from step to step
    assert row.data_wait_frac * period_ms >= 50  # a loaded machine sleeps longer, never shorter


def test_a_slow_step_is_no_wait_for_data(compose, monkeypatch):
    from trainkit.task import Objective

    plain = Objective.forward

    def slow(self, *inputs):
        time.sleep(0.03 if self.training else 0)
        return plain(self, *inputs)

    monkeypatch.setattr(Objective, "forward", slow)
    row = run(compose(*QUICK))
    assert row.step_time_ms_p50 > 30
    assert row.data_wait_frac < 0.2


def test_training_time_is_without_validation_checkpoints_and_logging(compose, monkeypatch):
    from trainkit.run import Recorder
    from trainkit.task import Task

    def sleep_first(plain):
        def slow(self, *args, **kwargs):
            time.sleep(0.5)
            return plain(self, *args, **kwargs)

        return slow

    records = []
    for owner, name in ((Task, "on_validation_epoch_start"), (Recorder, "_record"), (Task, "finish_train_epoch")):
        monkeypatch.setattr(owner, name, sleep_first(getattr(owner, name)))
    run(compose(*QUICK), on_epoch=records.append)
    in_steps_s = records[1].num_samples / records[1].samples_per_s
    assert records[1].train_time_s - in_steps_s < 0.4
    assert records[1].val_time_s > 0.5


def test_resident_memory_reads_back_an_allocation():
    first = torch.ones(1000 * 2**20, dtype=torch.uint8)  # lifts the peak over what earlier tests have left
    before = meters.peak_resident_bytes()
    second = torch.ones(300 * 2**20, dtype=torch.uint8)
    assert meters.peak_resident_bytes() - before == pytest.approx(second.numel(), rel=0.05)
    del first
    assert meters.peak_resident_bytes() - before == pytest.approx(second.numel(), rel=0.05)


def step(time_ms: float, compiled: bool = False, num_batches: int = 1, period_ms: float = 0.0, wait_ms: float = 0.0):
    return Step(time_ms, period_ms or time_ms, wait_ms, num_batches, compiled)


def cost(*steps: Step, train_time_s: float = 1.0, complete: bool = True) -> EpochCost:
    return EpochCost(complete, train_time_s, None, 0.0, False, list(steps), 1, 2, 3)


def test_steps_that_compile_and_the_warm_up_after_them_are_not_steady():
    measured = Meters()
    quick, compiling = step(1.0), step(900.0, compiled=True)
    measured.epochs = [cost(compiling, *[quick] * 5), cost(quick, compiling, *[quick] * 4)]
    assert [len(epoch) for epoch in measured.steady_steps()] == [2, 2]
    summary = measured.summary(samples_per_batch=10)
    assert (summary["num_steps"], summary["num_steady_steps"]) == (12, 4)
    assert summary["step_time_ms_p99"] == 1.0
    assert summary["samples_per_s"] == 10_000
    assert summary["epoch_train_time_s"] is None  # both epochs hold a compile


def test_epochs_compare_between_modes_without_the_first_and_without_what_broke_off():
    measured = Meters()
    first, second, third = (cost(step(1.0), train_time_s=seconds) for seconds in (9.0, 2.0, 4.0))
    measured.epochs = [first, second, third, cost(step(1.0), train_time_s=0.1, complete=False)]
    assert measured.summary(1)["epoch_train_time_s"] == 3.0
    measured.epochs = [first]
    assert measured.summary(1)["epoch_train_time_s"] == 9.0


def test_a_shorter_last_step_of_an_accumulation_is_not_steady():
    measured = Meters()
    measured.epochs = [cost(*[step(8.0, num_batches=4)] * 5, step(2.0, num_batches=1))]
    summary = measured.summary(samples_per_batch=10)
    assert (summary["num_steps"], summary["num_steady_steps"], summary["samples_per_s"]) == (6, 2, 5_000)


def test_of_several_ranks_the_slowest_counts_step_by_step():
    # Rank 0 waits for data, and rank 1 in the all-reduce for rank 0: together they need the longest period, no more.
    fast = cost(step(2.0, period_ms=52.0, wait_ms=50.0), step(5.0))
    slow = EpochCost(True, 2.0, 0.5, 3.0, False, [step(51.0, period_ms=52.0), step(2.0, compiled=True)], 9, 9, 9)
    both = slowest([fast, slow])
    assert [step.time_ms for step in both.steps] == [51.0, 5.0]
    assert (both.steps[0].period_ms, both.steps[0].wait_ms) == (52.0, 50.0)
    assert [step.compiled for step in both.steps] == [False, True]
    assert (both.train_time_s, both.val_time_s, both.compile_time_s, both.peak_device_bytes) == (2.0, 0.5, 3.0, 9)


def test_a_stopwatch_adds_up_and_forgives_a_second_stop(monkeypatch):
    now = iter([1.0, 3.0, 10.0, 11.0])
    monkeypatch.setattr(meters.time, "perf_counter", lambda: next(now))
    watch = Stopwatch()
    watch.start()
    watch.stop()
    watch.stop()
    watch.start()
    watch.stop()
    assert watch.total_s == 3.0


def test_percentiles_interpolate_and_nothing_has_none():
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile([], 50) is None
