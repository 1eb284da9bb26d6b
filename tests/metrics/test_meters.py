"""The meters read back what is known: a sleep, an allocation, a wait for data, a compile."""

import time
from dataclasses import replace

import pytest
import torch
from torch._dynamo import register_backend

from trainkit.metrics import memory, steps, timer
from trainkit.metrics.memory import Memory
from trainkit.metrics.meters import Meters
from trainkit.metrics.steps import EpochCost, Step, num_warmup, percentile, slowest
from trainkit.metrics.timer import Stopwatch
from trainkit.results.row import COMPILE_KINDS
from trainkit.training.run import run

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


def test_resident_memory_reads_back_an_allocation():
    first = torch.ones(1000 * 2**20, dtype=torch.uint8)  # lifts the peak over what earlier tests have left
    before = memory.peak_resident_bytes()
    second = torch.ones(300 * 2**20, dtype=torch.uint8)
    assert memory.peak_resident_bytes() - before == pytest.approx(second.numel(), rel=0.05)
    del first
    assert memory.peak_resident_bytes() - before == pytest.approx(second.numel(), rel=0.05)


def step(time_ms: float, compiled: bool = False, num_batches: int = 1, period_ms: float = 0.0, wait_ms: float = 0.0):
    return Step(time_ms, period_ms or time_ms, wait_ms, num_batches, compiled, num_samples=10 * num_batches)


def cost(*steps: Step, train_time_s: float = 1.0, complete: bool = True) -> EpochCost:
    return EpochCost(complete, train_time_s, None, parts(0.0), False, list(steps), None, Memory(1, 2, 3))


def parts(forward: float) -> dict[str, float]:
    return dict.fromkeys(COMPILE_KINDS, 0.0) | {"forward": forward}


def test_steps_that_compile_and_the_warm_up_after_them_are_not_steady():
    measured = Meters()
    quick, compiling = step(1.0), step(900.0, compiled=True)
    measured.epochs = [cost(compiling, *[quick] * 5), cost(quick, compiling, *[quick] * 4)]
    assert [len(epoch) for epoch in measured.steady_steps()] == [2, 2]
    summary = measured.summary({}, True)
    assert (summary["num_steps"], summary["num_steady_steps"]) == (12, 4)
    assert summary["step_time_ms_p99"] == 1.0
    assert summary["samples_per_s"] == 10_000
    assert summary["epoch_train_time_s"] is None  # both epochs hold a compile


def test_epochs_compare_between_modes_without_the_first_and_without_what_broke_off():
    measured = Meters()
    first, second, third = (cost(step(1.0), train_time_s=seconds) for seconds in (9.0, 2.0, 4.0))
    measured.epochs = [first, second, third, cost(step(1.0), train_time_s=0.1, complete=False)]
    assert measured.summary({}, True)["epoch_train_time_s"] == 3.0
    measured.epochs = [first]
    assert measured.summary({}, True)["epoch_train_time_s"] == 9.0


def test_the_step_time_of_two_shapes_does_not_turn_on_which_of_them_compiled():
    def trained(*compiling: int) -> dict:
        sizes = [32] * 20 + [64] * 20
        steps = [
            replace(step(1.0 if size == 32 else 2.0, compiled=n in compiling), alike=size)
            for n, size in enumerate(sizes)
        ]
        measured = Meters()
        measured.epochs = [cost(*steps), cost(*steps)]
        return measured.summary({}, True)

    once, twice = trained(0), trained(0, 20)
    assert once["step_time_ms_p50"] != twice["step_time_ms_p50"]  # the median jumps
    assert once["step_time_ms"] == twice["step_time_ms"] == 1.5


def test_a_function_left_to_python_runs_uncompiled_in_every_step():
    measured = Meters()
    measured.epochs = [cost(*[step(1.0)] * 5)]
    assert measured.summary({}, True, skips_function=True)["num_eager_steps"] == 5
    assert measured.summary({}, False, skips_function=True)["num_eager_steps"] is None


def test_a_shorter_last_step_of_an_accumulation_is_not_steady():
    measured = Meters()
    measured.epochs = [cost(*[step(8.0, num_batches=4)] * 5, step(2.0, num_batches=1))]
    summary = measured.summary({}, True)
    assert (summary["num_steps"], summary["num_steady_steps"], summary["samples_per_s"]) == (6, 2, 5_000)


def test_of_several_ranks_the_slowest_counts_step_by_step():
    # Rank 0 waits for data, and rank 1 in the all-reduce for rank 0: together they need the longest period, no more.
    fast = cost(step(2.0, period_ms=52.0, wait_ms=50.0), step(5.0))
    steps = [step(51.0, period_ms=52.0), step(2.0, compiled=True)]
    slow = EpochCost(True, 2.0, 0.5, parts(3.0), False, steps, Memory(9, 9, 9), Memory(0, 7, 2))
    both = slowest([fast, slow])
    assert [step.time_ms for step in both.steps] == [51.0, 5.0]
    assert [step.rank_spread_ms for step in both.steps] == [49.0, 3.0]
    assert (both.steps[0].period_ms, both.steps[0].wait_ms) == (52.0, 50.0)
    assert [step.compiled for step in both.steps] == [False, True]
    assert (both.train_time_s, both.val_time_s, both.compile_time_s) == (2.0, 0.5, 3.0)
    assert (both.compile_peak, both.steady_peak, both.peak) == (Memory(9, 9, 9), Memory(1, 7, 3), Memory(9, 9, 9))


def test_warm_up_lasts_until_times_settle():
    settled = [10.0, 10.1, 9.9] * 20
    assert num_warmup(settled) == 3
    assert num_warmup([30.0, 25.0, 20.0, 18.0, 15.0, 14.0, 13.0, 12.0, *settled]) in range(6, 9)
    assert num_warmup([*settled[:20], 500.0, *settled]) == 3  # a hiccup later is no warm-up


def test_warm_up_is_bounded_where_times_never_settle():
    falling = [1000.0 - i for i in range(400)]
    assert num_warmup(falling) == steps.MAX_WARMUP_STEPS
    assert num_warmup(falling[:40]) == 20
    assert num_warmup(falling[:2]) == 2
    assert num_warmup([]) == 0


def test_every_step_is_of_one_kind():
    measured = Meters()
    slow, quick = [step(9.0)] * 4, [step(1.0)] * 10
    measured.epochs = [cost(step(900.0, compiled=True), *slow, *quick, step(0.5, num_batches=0))]
    kinds = measured.classified()[0]
    assert kinds == ["compiling", *["warm-up"] * 4, *["steady"] * 10, "short"]
    summary = measured.summary({}, True)
    counted = summary["num_compiling_steps"], summary["num_warmup_steps"], summary["num_steady_steps"]
    assert counted == (1, 4, 10)
    assert summary["step_time_ms_iqr"] == 0.0


def test_trying_out_kernels_is_a_part_of_its_own():
    measured = Meters()
    measured.epochs = [cost(step(1.0))]
    measured.epochs[0].compile_s = parts(10.0) | {"recompile": 2.0}
    summary = measured.summary({"forward": 7.0, "recompile": 5.0}, True)
    got = {kind: summary[f"compile_{kind}_s"] for kind in COMPILE_KINDS}
    assert got == {"forward": 3.0, "backward": 0.0, "autotune": 9.0, "cudagraph": 0.0, "recompile": 0.0}
    assert summary["compile_time_s"] == 12.0
    assert measured.summary({"autotune": 1.5}, True)["compile_time_s"] == 13.5  # at a kernel's first launch


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


def test_a_profiling_epoch_splits_the_step_and_changes_nothing_else(compose, tmp_path, monkeypatch):
    from trainkit.training.objective import Objective

    plain = Objective.forward

    def slow(self, *inputs):
        time.sleep(0.02 if self.training else 0)
        return plain(self, *inputs)

    monkeypatch.setattr(Objective, "forward", slow)
    asked = (
        "compile.mode=eager",
        "trainer.max_epochs=2",
        "trainer.accumulate_grad_batches=4",
    )  # of 22 batches: the last step has two
    rows = [
        run(compose(*asked, f"meters.breakdown={on}", run_dir=tmp_path / f"breakdown-{on}")) for on in ("true", "false")
    ]
    assert rows[0].forward_time_ms_p50 >= 80  # four batches a step
    assert 0 < rows[0].optimizer_time_ms_p50 < 20  # no forward in it
    assert (rows[1].forward_time_ms_p50, rows[1].backward_time_ms_p50, rows[1].optimizer_time_ms_p50) == (None,) * 3
    for name in ("num_steps", "num_epochs", "train_loss", "val_loss", "val_accuracy"):
        assert getattr(rows[0], name) == getattr(rows[1], name), name
    states = [torch.load(tmp_path / f"breakdown-{on}/checkpoints/last.ckpt") for on in ("true", "false")]
    assert states[0]["global_step"] == states[1]["global_step"]


def test_a_stopwatch_adds_up_and_forgives_a_second_stop(monkeypatch):
    now = iter([1.0, 3.0, 10.0, 11.0])
    monkeypatch.setattr(timer.time, "perf_counter", lambda: next(now))
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
