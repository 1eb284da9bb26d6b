"""The meters of a fit read back what is known: a sleep, a wait for data."""

import time

from tests.metrics.conftest import QUICK
from trainkit.training.run import run


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
    from trainkit.training.objective import Objective

    plain = Objective.forward

    def slow(self, *inputs):
        time.sleep(0.03 if self.training else 0)
        return plain(self, *inputs)

    monkeypatch.setattr(Objective, "forward", slow)
    row = run(compose(*QUICK))
    assert row.step_time_ms_p50 > 30
    assert row.data_wait_frac < 0.2


def test_training_time_is_without_validation_checkpoints_and_logging(compose, monkeypatch):
    from trainkit.training.recorder import Recorder
    from trainkit.training.task import Task

    def sleep_first(plain):
        def slow(self, *args, **kwargs):
            time.sleep(0.5)
            return plain(self, *args, **kwargs)

        return slow

    records = []
    for owner, name in ((Task, "on_validation_epoch_start"), (Recorder, "_make_record"), (Task, "finish_train_epoch")):
        monkeypatch.setattr(owner, name, sleep_first(getattr(owner, name)))
    run(compose(*QUICK), on_epoch=records.append)
    in_steps_s = records[1].num_samples / records[1].samples_per_s
    assert records[1].train_time_s - in_steps_s < 0.4
    assert records[1].val_time_s > 0.5
