"""Communication that is not hidden: arithmetic of intervals, and the window of steps in a real fit."""

from contextlib import ExitStack
from itertools import cycle, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, IterableDataset

from trainkit.distributed.launch import Launch
from trainkit.distributed.topology import select_devices
from trainkit.distributed.watch import Watch
from trainkit.metrics import communication
from trainkit.metrics.communication import (
    WARM_UP_STEPS,
    WINDOW_STEPS,
    CommunicationWindow,
    Kernel,
    exposed_by_step,
    uncovered,
    union,
)
from trainkit.results.files import read_row
from trainkit.results.requested import requested_fields
from trainkit.results.row import Row
from trainkit.training.components import Listeners, build
from trainkit.training.run import fit
from trainkit.training.trainer import build_window_trainer

INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda it: (it[0], it[0] + it[1])), max_size=8
)


def points(intervals) -> set[int]:
    """Each interval [start, end) as the whole numbers in it."""
    covered: set[int] = set()
    for start, end in intervals:
        covered |= set(range(start, end))
    return covered


@given(INTERVALS)
def test_a_union_has_the_same_points_in_disjoint_intervals(intervals):
    merged = union(intervals)
    assert points(merged) == points(intervals)
    assert all(one[1] < other[0] for one, other in pairwise(merged))


@given(INTERVALS, INTERVALS)
def test_uncovered_are_the_points_of_the_ones_that_are_not_in_the_others(intervals, covers):
    assert uncovered(intervals, union(covers)) == len(points(intervals) - points(covers))


@given(INTERVALS, INTERVALS)
def test_more_work_hides_more_and_nothing_hides_nothing(intervals, covers):
    more = union([*covers, (0, 30)])
    assert uncovered(intervals, more) <= uncovered(intervals, union(covers)) <= uncovered(intervals, [])
    assert uncovered(intervals, union(intervals)) == 0


def test_each_step_has_its_own_communication():
    kernels = [Kernel("gemm", 0, 10), Kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 8, 14), Kernel("adam", 14, 16)]
    kernels += [Kernel("gemm", 20, 30), Kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 27, 31)]
    assert exposed_by_step(kernels, 2) == [4, 1]
    assert exposed_by_step(kernels[::-1], 2) == [4, 1]  # in whatever order a trace has them
    assert exposed_by_step(kernels, 1) == [5]


def test_work_is_what_the_gpu_does_beside_communicating():
    window = CommunicationWindow()
    assert window.compute_ms() is None
    window.kernels = [
        Kernel("gemm", 0, 10),
        Kernel("copy", 5, 12),
        Kernel("ncclDevKernel", 8, 40),
        Kernel("adam", 40, 48),
    ]
    assert window.compute_ms() == pytest.approx((12 + 8) / WINDOW_STEPS)


@pytest.mark.parametrize("num_steps", [2, 4])
def test_steps_that_cannot_be_told_apart_are_unknown(num_steps):
    assert exposed_by_step([Kernel("nccl", n, n + 1) for n in range(3)], num_steps) == []
    assert exposed_by_step([], num_steps) == []


class Endless(IterableDataset):
    def __init__(self, batches: list):
        self.batches = batches

    def __iter__(self):
        return cycle(self.batches)


@pytest.mark.parametrize(
    ("num_batches", "accumulated", "first_step", "num_steps"),
    [
        (32, 1, WARM_UP_STEPS, WINDOW_STEPS),
        (24, 1, 24, WINDOW_STEPS),  # the first epoch ends too early for it
        (16, 2, 16, 8),
        (None, 1, WARM_UP_STEPS, WINDOW_STEPS),  # a loader without a length
    ],
)
def test_the_window_is_profiled_after_the_warm_up_within_an_epoch(
    compose, monkeypatch, num_batches, accumulated, first_step, num_steps
):
    profilers: list[profile] = []

    def profile_cpu(activities) -> profile:  # there is no GPU here
        profilers.append(profile(activities=[ProfilerActivity.CPU]))
        return profilers[-1]

    monkeypatch.setattr(communication, "profile", profile_cpu)
    config = compose(
        "compile.mode=eager",
        "trainer.max_epochs=1",
        "data.batch_size=32",
        "trainer.limit_train_batches=" + ("null" if num_batches is None else str(num_batches)),
        f"trainer.accumulate_grad_batches={accumulated}",
    )
    with ExitStack() as contexts:
        watch = Watch(Launch(Path(config.job.run_dir)), Row(status="interrupted", **requested_fields(config)))
        components = build(config, Listeners(), watch, contexts)
        fit(components, on_stage=lambda stage: None)
        window = CommunicationWindow()
        trainer = build_window_trainer(config, select_devices(config), watch, window)
        if num_batches is None:
            stream = DataLoader(Endless(list(components.data.train_dataloader())), batch_size=None)
            monkeypatch.setattr(components.data, "train_dataloader", lambda: stream)
        trainer.fit(components.task, datamodule=components.data)
    assert trainer.global_step == first_step + num_steps
    (profiler,) = profilers
    names = [event.name for event in profiler.events()]
    assert sum(name.startswith("Optimizer.step#") for name in names) == num_steps
    assert sum(name == "aten::cross_entropy_loss" for name in names) == accumulated * num_steps
    assert window.kernels == []
    assert window.exposed_comm_ms() is None
    assert window.compute_ms() is None


def test_ranks_on_a_cpu_measure_no_communication(train, tmp_path):
    words = ("compile.mode=eager", "logger=none", "trainer.max_epochs=1", "trainer.limit_train_batches=3")
    done = train(*words, "meters.communication=true", "hydra.run.dir=run", ranks=2)
    assert done.returncode == 0, done.stderr
    row = read_row(tmp_path / "run")
    assert (row.status, row.world_size, row.exposed_comm_ms, row.compute_ms) == ("ok", 2, None, None)
