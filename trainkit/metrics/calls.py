"""Times of calls of a network, from the batch being on the device on.

A call by itself is timed to the result being there, on the host's clock: the device is idle when the call begins, and
has finished when it ends. So it has the host's share of the latency. In a window of calls nothing waits for a result
before the last: where the device is faster than the host issues calls, the time of a call is the host's.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from trainkit.inputs import Shape
from trainkit.metrics.epochs import EpochCost, EpochMeter, steps_by_epoch
from trainkit.metrics.steps import Step, StepKind, classify, steady
from trainkit.metrics.summary import CompilerReport, summarize
from trainkit.metrics.timer import current_stream, mark, milliseconds, synchronize
from trainkit.results.facts import ShapeLatency
from trainkit.stats import percentile

OF_TRAINING = ("epoch_train_time_s", "step_overhead_ms", "epoch_val_time_s", "data_wait_frac", "samples_per_step")

Result = TypeVar("Result")


class Call(NamedTuple):
    """The work of a call: one network with inputs of one shape."""

    network: int
    shape: Shape


class Window(NamedTuple):
    """The work of a window of calls: inputs of these shapes, in any order."""

    shapes: tuple[Shape, ...]


class CallMeters:
    """Measures calls, in `epochs`: a step is one call, or one window of calls.

    With `measured_first` the calls of the first epoch measure each network, so all of them are warm-up, and the later
    ones are steady unless something compiled.
    """

    def __init__(self, measured_first: bool = False) -> None:
        self.measured_first = measured_first
        self.epochs: list[EpochCost] = []
        self.epoch_meter = EpochMeter()
        self._calls: list[Step] = []

    def begin(self, device: torch.device) -> None:
        """Begin an epoch of calls."""
        self._calls = []
        self.epoch_meter.begin(device)

    def end(self, complete: bool) -> None:
        """End the epoch of calls, if one has begun."""
        if self.epoch_meter.is_open:
            self.epoch_meter.end()
            self.epochs.append(self.epoch_meter.cost(self._calls, complete))

    def call(self, answer: Callable[[], Result], network: int, shape: Shape) -> tuple[Result, Step]:
        """Call `answer`, whose inputs have the shape [B, ...]. Returns its result and its measurement."""
        synchronize(self.epoch_meter.device)
        self.epoch_meter.begin_step()
        start = mark()
        answered = answer()
        synchronize(self.epoch_meter.device)
        time_ms = milliseconds(start, mark())
        step = Step(
            time_ms=time_ms,
            period_ms=time_ms,
            wait_ms=0.0,
            num_batches=1,
            compiled=self.epoch_meter.compiled(),
            eager=self.epoch_meter.ran_eager,
            num_samples=shape[0],
            work=Call(network, shape),
        )
        self._calls.append(step)
        self.epoch_meter.end_step()
        return answered, step

    def window(self, issue: Callable[[], None], shapes: Sequence[Shape]) -> None:
        """Measure a window: `issue` calls a network with inputs of these shapes, without waiting. The time of the step
        is that of one call. The device is idle when the window begins."""
        device = self.epoch_meter.device
        stream = current_stream(device)
        synchronize(device)
        self.epoch_meter.begin_step()
        start = mark(stream)
        issue()
        end = mark(stream)
        synchronize(device)
        window_ms = milliseconds(start, end)
        step = Step(
            time_ms=window_ms / len(shapes),
            period_ms=window_ms,
            wait_ms=0.0,
            num_batches=len(shapes),
            compiled=self.epoch_meter.compiled(),
            eager=self.epoch_meter.ran_eager,
            num_samples=sum(shape[0] for shape in shapes),
            work=Window(tuple(sorted(shapes))),
        )
        self._calls.append(step)
        self.epoch_meter.end_step()

    def kinds(self) -> list[list[StepKind]]:
        """The kind of each call of each epoch."""
        if not self.measured_first:
            return classify(steps_by_epoch(self.epochs))
        kinds = []
        for epoch, kind in zip(self.epochs, (StepKind.WARMUP, StepKind.STEADY), strict=False):
            kinds.append([_kind(step, kind) for step in epoch.steps])
        return kinds

    def steady_calls(self) -> list[Step]:
        """The steady calls of all epochs."""
        calls: list[Step] = []
        for epoch, kinds in zip(self.epochs, self.kinds(), strict=True):
            calls += steady(epoch.steps, kinds)
        return calls

    def call_times_ms(self) -> list[float]:
        """The times of the first epoch's calls, compiling or not, as they came; empty if they are those of windows."""
        if not self.epochs:
            return []
        return [step.time_ms for step in self.epochs[0].steps if isinstance(step.work, Call)]

    def summary(self, report: CompilerReport) -> dict[str, Any]:
        """The columns of a row on time and memory; None for those of training and of the time between calls."""
        columns = summarize(self.epochs, self.kinds(), self.epoch_meter.compile_clock, report)
        columns |= dict.fromkeys(OF_TRAINING)
        return columns | {"latency_by_shape": self._latency_by_shape()}

    def latency(self, network: int) -> dict[str, Any]:
        """`num_calls` and percentiles of the steady calls of one network."""
        times_ms = [step.time_ms for step in self.steady_calls() if _work(step).network == network]
        return _latency_columns(times_ms)

    def _latency_by_shape(self) -> list[ShapeLatency] | None:
        """The latency of the steady calls with each shape of the inputs; empty if there is one shape alone, None if
        calls are not measured each by itself."""
        times_ms: dict[Shape, list[float]] = {}
        for epoch in self.epochs:
            for step in epoch.steps:
                if isinstance(step.work, Window):
                    return None
                times_ms.setdefault(_work(step).shape, [])
        if len(times_ms) < 2:
            return []
        for step in self.steady_calls():
            times_ms[_work(step).shape].append(step.time_ms)
        latencies = []
        for shape in sorted(times_ms):
            latencies.append(ShapeLatency(list(shape), **_latency_columns(times_ms[shape])))
        return latencies


def _kind(step: Step, kind: StepKind) -> StepKind:
    return StepKind.COMPILING if step.compiled else kind


def _work(step: Step) -> Call:
    assert isinstance(step.work, Call)
    return step.work


def _latency_columns(times_ms: list[float]) -> dict[str, Any]:
    return {
        "num_calls": len(times_ms),
        "time_ms_p50": percentile(times_ms, 50),
        "time_ms_p90": percentile(times_ms, 90),
        "time_ms_p99": percentile(times_ms, 99),
    }
