"""The clock: how time is taken of what runs on the host and on the device. The only file that reads one.

On a GPU a step is timed by a pair of CUDA events that are read after the epoch, so that nothing waits inside it; on a
CPU by the monotonic clock.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning.pytorch.profilers import Profiler

from trainkit.metrics.steps import num_warmup, percentile


@dataclass
class Stopwatch:
    """Adds up the seconds between start() and stop(); either may be called twice."""

    total_s: float = 0.0
    _since: float | None = field(default=None, repr=False)

    def start(self) -> None:
        self._since = time.perf_counter() if self._since is None else self._since

    def stop(self) -> None:
        if self._since is not None:
            self.total_s += time.perf_counter() - self._since
        self._since = None


class BatchClock(Profiler):
    """Takes the time that the training loop waits for its batches; Lightning tells its profiler around each fetch."""

    def __init__(self) -> None:
        super().__init__()
        self._fetching = Stopwatch()

    def start(self, action_name: str) -> None:
        if action_name.endswith("train_dataloader_next"):
            self._fetching.start()

    def stop(self, action_name: str) -> None:
        if action_name.endswith("train_dataloader_next"):
            self._fetching.stop()

    def lap_ms(self) -> float:
        """Milliseconds since the last lap."""
        lap_s, self._fetching = self._fetching.total_s, Stopwatch()
        return lap_s * 1e3


class Breakdown(Profiler):
    """Splits the steps of a profiling epoch: Lightning tells its profiler around forward, backward and optimizer.

    `num_batches` are accumulated to a step; the step at the epoch's end that has fewer does not count."""

    ACTIONS = (".training_step", ".backward", ".optimizer_step")

    def __init__(self, num_batches: int) -> None:
        super().__init__()
        self.num_batches = num_batches
        self._marks: dict[str, list[tuple[Any, Any]]] = {action: [] for action in self.ACTIONS}
        self._started: dict[str, Any] = {}

    def start(self, action_name: str) -> None:
        if action_name.endswith(self.ACTIONS) and not action_name.startswith("[Callback]"):
            self._started[action_name] = mark(torch.cuda.is_initialized())

    def stop(self, action_name: str) -> None:
        if (started := self._started.pop(action_name, None)) is not None:
            name = next(action for action in self.ACTIONS if action_name.endswith(action))
            self._marks[name].append((started, mark(torch.cuda.is_initialized())))

    def summary_ms(self) -> dict[str, float | None]:
        """The breakdown fields of results.Row: medians over the epoch's steady steps, accumulated batches summed up.
        The optimizer's is from the end of the last backward to the end of its step, clipping and unscaling in it."""
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        forward, backward, step = self._marks.values()
        per_step = self.num_batches
        num_steps = len(forward) // per_step  # the rest of an epoch is a step of fewer batches
        forward_ms, backward_ms = (
            [sum(milliseconds(*pair) for pair in pairs[i * per_step : (i + 1) * per_step]) for i in range(num_steps)]
            for pairs in (forward, backward)
        )
        last = backward[per_step - 1 :: per_step]
        optimizer_ms = [milliseconds(before[1], whole[1]) for before, whole in zip(last, step, strict=False)]
        whole_ms = [sum(parts) for parts in zip(forward_ms, backward_ms, optimizer_ms, strict=False)]
        first = num_warmup(whole_ms)
        return {
            "forward_time_ms_p50": percentile(forward_ms[first:], 50),
            "backward_time_ms_p50": percentile(backward_ms[first:], 50),
            "optimizer_time_ms_p50": percentile(optimizer_ms[first:], 50),
        }


def mark(on_gpu: bool) -> Any:
    """A point in time for `milliseconds`: on a GPU when the device gets there, which nobody waits for."""
    if not on_gpu:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def timed_ms(step: Callable[[], object], num_steps: int, on_gpu: bool) -> list[float]:
    """Milliseconds of each of so many calls, one after another; on a GPU between events that are read at the end."""
    marks = [(mark(on_gpu), step(), mark(on_gpu)) for _ in range(num_steps)]
    if on_gpu:
        torch.cuda.synchronize()
    return [milliseconds(start, end) for start, _, end in marks]


def milliseconds(start: Any, end: Any) -> float:
    """From one mark to another."""
    return (end - start) * 1e3 if isinstance(start, float) else start.elapsed_time(end)
