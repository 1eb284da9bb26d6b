"""The meter of batches, driven as a training loop drives it."""

import time

import torch

from trainkit.metrics.batches import BatchMeter
from trainkit.metrics.epochs import EpochMeter


def test_all_waits_before_a_batch_are_its_wait():
    epoch_meter = EpochMeter()
    meter = BatchMeter(epoch_meter)
    epoch_meter.begin(torch.device("cpu"))
    meter.begin_epoch()
    for num_waits in (2, 1):  # Lightning fetches one batch ahead from a loader without a length
        for _ in range(num_waits):
            meter.begin_wait()
            time.sleep(0.05)
            meter.end_wait()
        meter.begin_batch([torch.zeros(3, 2)])
        meter.end_batch()
    first, second = meter.steps(batches_per_step=1)
    assert first.wait_ms >= 100
    assert second.wait_ms >= 50
    assert (first.num_samples, first.work) == (3, ((3, 2),))


def test_a_validation_inside_of_an_epoch_is_in_no_period():
    epoch_meter = EpochMeter()
    meter = BatchMeter(epoch_meter)
    epoch_meter.begin(torch.device("cpu"))
    meter.begin_epoch()
    for _ in range(4):
        meter.begin_batch([torch.zeros(3, 2)])
        meter.end_batch()
        epoch_meter.begin_validation()
        time.sleep(0.1)
        epoch_meter.end_validation()
        meter.resume_epoch()
    epoch_meter.end()
    cost = epoch_meter.cost(meter.steps(batches_per_step=2), complete=True)
    assert sum(step.period_ms for step in cost.steps) < 100
    assert cost.train_time_s < 0.1
    assert cost.val_time_s >= 0.4
