"""An epoch over all ranks, and its meter."""

import time

import pytest
import torch
from torch._dynamo import register_backend

from tests.metrics.conftest import compile_parts, make_cost, make_step
from trainkit.metrics import memory
from trainkit.metrics.epochs import EpochMeter, reduce_ranks
from trainkit.metrics.memory import Memory
from trainkit.training.run import run


def test_of_several_ranks_the_slowest_counts_step_by_step():
    # Rank 0 waits for data, and rank 1 in the all-reduce for rank 0: together they need the longest period, no more.
    fast = make_cost(make_step(2.0, period_ms=52.0, wait_ms=50.0), make_step(5.0))
    slow = make_cost(
        make_step(51.0, period_ms=52.0), make_step(2.0, compiled=True),
        train_time_s=2.0, val_time_s=0.5, compile_s=compile_parts(3.0),
        compile_peak=Memory(9, 9, 9), steady_peak=Memory(0, 7, 2),
    )  # fmt: skip
    both = reduce_ranks([fast, slow])
    assert [step.time_ms for step in both.steps] == [51.0, 5.0]
    assert [step.rank_spread_ms for step in both.steps] == [49.0, 3.0]
    assert (both.steps[0].period_ms, both.steps[0].wait_ms) == (52.0, 50.0)
    assert [step.compiled for step in both.steps] == [False, True]
    assert [step.num_samples for step in both.steps] == [20, 20]
    assert (both.train_time_s, both.val_time_s, both.compile_time_s) == (2.0, 0.5, 3.0)
    assert (both.compile_peak, both.steady_peak, both.peak) == (Memory(9, 9, 9), Memory(1, 7, 3), Memory(9, 9, 9))


def test_an_epoch_of_which_a_rank_broke_off_is_not_complete():
    assert not reduce_ranks([make_cost(make_step(1.0)), make_cost(make_step(1.0), complete=False)]).finished


def test_the_meter_tells_training_from_validation_and_which_step_compiled():
    meter = EpochMeter()
    meter.begin(torch.device("cpu"))
    meter.begin_step()
    meter.on_compile_start("forward")
    time.sleep(0.05)
    meter.on_compile_end("forward")
    assert meter.compiled()
    meter.end_step()
    meter.begin_step()
    assert not meter.compiled()
    meter.begin_validation()
    time.sleep(0.02)
    meter.end_validation()
    meter.end()
    cost = meter.cost([], complete=True)
    assert 0.05 <= cost.compile_s["forward"] <= cost.train_time_s
    assert cost.val_time_s is not None
    assert cost.val_time_s >= 0.02
    assert not cost.compiled_in_validation
    assert cost.compile_peak is not None
    assert cost.steady_peak is not None


@register_backend(name="hungry")
def needs_400_mib_for_a_moment(graph, inputs):
    torch.ones(400 * 2**20, dtype=torch.uint8)
    return graph.forward


@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="resident peaks are reset through Linux's /proc")
def test_the_compile_phases_memory_is_apart_from_the_steady_phases(compose):
    row = run(compose("compile.backend=hungry", "trainer.max_epochs=3", "trainer.limit_train_batches=8"))
    assert row.status == "ok", row.error
    difference = row.compile_peak_allocated_bytes - row.peak_allocated_bytes
    assert difference == pytest.approx(400 * 2**20, rel=0.15)
