"""Clocks of the host and the device: the only module that reads one.

On a GPU a step is timed by CUDA events, which are read after the epoch, so that no step waits for them. On a CPU it is
timed by the monotonic clock.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning.pytorch.profilers import Profiler

from trainkit.metrics.steps import num_warmup
from trainkit.stats import percentile

Interval = tuple[Any, Any]  # marks of its start and end


@dataclass
class Stopwatch:
    """Adds up the seconds between start() and stop(); either may be called twice."""

    total_s: float = 0.0
    _since: float | None = field(default=None, repr=False)

    def start(self) -> None:
        if self._since is None:
            self._since = time.perf_counter()

    def stop(self) -> None:
        if self._since is not None:
            self.total_s += time.perf_counter() - self._since
        self._since = None


class Breakdown(Profiler):
    """Splits the steps of a profiling epoch: Lightning calls its profiler around forward, backward and optimizer.

    A step has `num_batches` batches; the shorter step at the epoch's end does not count.
    """

    ACTIONS = (".training_step", ".backward", ".optimizer_step")

    def __init__(self, num_batches: int) -> None:
        super().__init__()
        self.num_batches = num_batches
        self._intervals: dict[str, list[Interval]] = {action: [] for action in self.ACTIONS}
        self._started: dict[str, Any] = {}

    def start(self, action_name: str) -> None:
        if action_name.endswith(self.ACTIONS) and not action_name.startswith("[Callback]"):
            self._started[action_name] = self._mark()

    def stop(self, action_name: str) -> None:
        started = self._started.pop(action_name, None)
        if started is None:
            return
        for action, intervals in self._intervals.items():
            if action_name.endswith(action):
                intervals.append((started, self._mark()))

    def summary_ms(self) -> dict[str, float | None]:
        """The columns of the breakdown: medians over the epoch's steady steps; a step's batches are added up.

        The optimizer's time is from the end of the last backward to the end of its step, with clipping and unscaling.
        """
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        forward, backward, optimizer = self._intervals.values()
        forward_ms = self._step_times_ms(forward)
        backward_ms = self._step_times_ms(backward)
        last_backward = backward[self.num_batches - 1 :: self.num_batches]
        optimizer_ms = []
        for (_, backward_end), (_, optimizer_end) in zip(last_backward, optimizer, strict=False):
            optimizer_ms.append(milliseconds(backward_end, optimizer_end))
        whole_ms = [sum(parts) for parts in zip(forward_ms, backward_ms, optimizer_ms, strict=False)]
        first = num_warmup(whole_ms)
        return {
            "forward_time_ms_p50": percentile(forward_ms[first:], 50),
            "backward_time_ms_p50": percentile(backward_ms[first:], 50),
            "optimizer_time_ms_p50": percentile(optimizer_ms[first:], 50),
        }

    def _mark(self) -> Any:
        return mark(torch.cuda.current_stream() if torch.cuda.is_initialized() else None)

    def _step_times_ms(self, intervals: list[Interval]) -> list[float]:
        """Milliseconds of each whole step."""
        times_ms = [milliseconds(start, end) for start, end in intervals]
        steps_ms = []
        for end in range(self.num_batches, len(times_ms) + 1, self.num_batches):
            steps_ms.append(sum(times_ms[end - self.num_batches : end]))
        return steps_ms


def mark(stream: torch.cuda.Stream | None = None) -> Any:
    """A point in time for `milliseconds`: on the host, or the time when a GPU's stream gets there, without waiting."""
    if stream is None:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(stream)  # without a stream it would look the current one up, for 10 us and more
    return event


def current_stream(device: torch.device) -> torch.cuda.Stream | None:
    """The stream on which a GPU works now; None for a CPU, for `mark`."""
    return torch.cuda.current_stream(device) if device.type == "cuda" else None


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed_ms(step: Callable[[], object], num_steps: int, on_gpu: bool) -> list[float]:
    """Milliseconds of each of `num_steps` calls in a row; on a GPU between events that are read at the end."""
    stream = torch.cuda.current_stream() if on_gpu else None
    marks = [(mark(stream), step(), mark(stream)) for _ in range(num_steps)]
    if on_gpu:
        torch.cuda.synchronize()
    return [milliseconds(start, end) for start, _, end in marks]


def milliseconds(start: Any, end: Any) -> float:
    """The time from one mark to another."""
    if isinstance(start, float):
        return (end - start) * 1e3
    elapsed_ms: float = start.elapsed_time(end)
    return elapsed_ms
