"""A profiled window of training steps: the work of a GPU, and its communication that is not hidden behind that."""

from bisect import bisect_right
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.profiler import ProfilerActivity, profile

from trainkit.metrics.timer import synchronize

WARM_UP_STEPS = 10  # DDP arranges its buckets, graphs are compiled or recorded again
WINDOW_STEPS = 20
NCCL = "nccl"  # how the names of its kernels begin

Interval = tuple[float, float]  # start and end


class Kernel(NamedTuple):
    """Work of a GPU: a kernel or a copy, with its start and end in milliseconds."""

    name: str
    start: float
    end: float


class CommunicationWindow(Callback):
    """Profiles WINDOW_STEPS steps of a fit after WARM_UP_STEPS others, without waiting between them, and ends it.

    The window lies within an epoch, since the end of one communicates, too: it is as short as the epoch.
    """

    def __init__(self) -> None:
        self.kernels: list[Kernel] | None = None
        self._profiler: profile | None = None
        self._num_steps = WINDOW_STEPS
        self._last_step = 0

    def on_train_batch_start(self, trainer: Trainer, task: LightningModule, batch: Any, index: int) -> None:
        if self._profiler is not None or trainer.global_step < WARM_UP_STEPS:
            return
        batches_per_step = trainer.accumulate_grad_batches
        steps_of_epoch = max(1.0, trainer.num_training_batches / batches_per_step)  # infinite if it is unknown
        self._num_steps = int(min(WINDOW_STEPS, steps_of_epoch))
        step, batch_of_step = divmod(index, batches_per_step)
        if batch_of_step == 0 and step + self._num_steps <= steps_of_epoch:
            self._last_step = trainer.global_step + self._num_steps
            synchronize(trainer.strategy.root_device)
            self._profiler = profile(activities=[ProfilerActivity.CUDA])
            self._profiler.start()

    def on_train_batch_end(self, trainer: Trainer, task: LightningModule, outputs: Any, batch: Any, index: int) -> None:
        if self._profiler is not None and trainer.global_step == self._last_step:
            synchronize(trainer.strategy.root_device)
            self._profiler.stop()
            self.kernels = kernels_of(self._profiler)
            trainer.should_stop = True

    def exposed_comm_ms(self) -> float | None:
        """Milliseconds of a step in which this GPU did nothing but communicate: the median over the window.

        None if the window was not reached, or if its steps communicate differently often.
        """
        if self.kernels is None:
            return None
        steps_ms = exposed_by_step(self.kernels, self._num_steps)
        return median(steps_ms) if steps_ms else None

    def compute_ms(self) -> float | None:
        """Milliseconds of a step in which this GPU did other work than communicate: the mean over the window.

        None if the window was not reached, or the GPU did nothing in it.
        """
        if not self.kernels:
            return None
        _, other_work = split(self.kernels)
        return uncovered(other_work, []) / self._num_steps


def kernels_of(profiler: profile) -> list[Kernel]:
    """All work of GPUs that was profiled; the profiler has been stopped."""
    assert profiler.profiler is not None
    results = profiler.profiler.kineto_results  # profiler.events() parses them, which takes long for a large network
    assert results is not None
    first_ns, kernels = results.trace_start_ns(), []
    for event in results.events():
        if event.device_type().name == "CUDA" and not event.is_user_annotation():
            kernels.append(Kernel(event.name(), (event.start_ns() - first_ns) / 1e6, (event.end_ns() - first_ns) / 1e6))
    return kernels


def exposed_by_step(kernels: Sequence[Kernel], num_steps: int) -> list[float]:
    """Milliseconds of each step in which the GPU did nothing but communicate; empty if that is unknown.

    Assumes that each step has as many kernels of NCCL as the others: a trace has no ends of steps.
    """
    communication, other_work = split(kernels)
    per_step, remainder = divmod(len(communication), num_steps)
    if per_step == 0 or remainder:
        return []
    communication.sort()
    covers, steps_ms = union(other_work), []
    for first in range(0, len(communication), per_step):
        steps_ms.append(uncovered(communication[first : first + per_step], covers))
    return steps_ms


def split(kernels: Sequence[Kernel]) -> tuple[list[Interval], list[Interval]]:
    """When the GPU communicated, and when it did other work."""
    communication: list[Interval] = []
    other_work: list[Interval] = []
    for kernel in kernels:
        work = communication if kernel.name.startswith(NCCL) else other_work
        work.append((kernel.start, kernel.end))
    return communication, other_work


def uncovered(intervals: Sequence[Interval], covers: Sequence[Interval]) -> float:
    """The length of the union of intervals without the parts that covers overlap, which are disjoint and in order."""
    length = 0.0
    for start, end in union(intervals):
        length += end - start
        first = bisect_right(covers, start, key=lambda cover: cover[1])
        for index in range(first, len(covers)):
            cover_start, cover_end = covers[index]
            if cover_start >= end:
                break
            length -= min(end, cover_end) - max(start, cover_start)
    return length


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """The same points as disjoint intervals, in their order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
