"""The meter of the batches that a training loop trains on."""

from dataclasses import dataclass, field
from typing import Any

from trainkit.inputs import Shape, shape_of
from trainkit.metrics.epochs import EpochMeter
from trainkit.metrics.steps import Step
from trainkit.metrics.timer import Stopwatch, current_stream, mark, milliseconds


@dataclass(slots=True)
class MeasuredBatch:
    """A batch of training: marks of its time on the device, and its share of a step."""

    wait_ms: float  # for the batch, on the host
    num_samples: int
    shape: Shape  # of the inputs
    resumed: Any = None  # the mark at which training went on before this batch, after a validation; None without one
    marks: list[Any] = field(default_factory=list)  # of its start, of each pause's start and end, and of its end
    is_complete: bool = False  # else it was broken off
    compiled: bool = False
    eager: bool = False

    def time_ms(self) -> float:
        """Milliseconds without the pauses."""
        starts, ends = self.marks[::2], self.marks[1::2]
        return sum(milliseconds(start, end) for start, end in zip(starts, ends, strict=True))


class BatchMeter:
    """Measures the batches of an epoch. The training loop says when it waits for one and when it trains on one."""

    def __init__(self, epoch_meter: EpochMeter):
        self._epoch_meter = epoch_meter

    def begin_epoch(self) -> None:
        """Begin after the epoch's meter."""
        self._batches: list[MeasuredBatch] = []
        self._waiting = Stopwatch()
        self._stream = current_stream(self._epoch_meter.device)
        self._epoch_start = mark(self._stream)
        self._resumed: Any = None

    def resume_epoch(self) -> None:
        """Training goes on, after a validation inside of the epoch if there has been one."""
        if self._epoch_meter.is_interrupted:
            self._epoch_meter.resume_training()
            self._resumed = mark(self._stream)

    def begin_wait(self) -> None:
        """The training loop asks for a batch. A loader without a length is asked twice before the first one."""
        self._waiting.start()

    def end_wait(self) -> None:
        """The batch has come."""
        self._waiting.stop()

    def begin_batch(self, batch: Any) -> None:
        """The batch is on the device: training on it begins."""
        self._epoch_meter.begin_step()
        wait_ms, self._waiting = self._waiting.total_s * 1e3, Stopwatch()
        shape = shape_of(batch[0])
        measured = MeasuredBatch(wait_ms, shape[0], shape, self._resumed)
        self._resumed = None
        self._batches.append(measured)
        measured.marks.append(mark(self._stream))

    def pause_batch(self) -> None:
        """Leave the time until `resume_batch` out of the step."""
        self._batches[-1].marks.append(mark(self._stream))

    def resume_batch(self) -> None:
        """The step goes on."""
        self._batches[-1].marks.append(mark(self._stream))

    def end_batch(self) -> None:
        """The step's work on the batch is done, or queued on the device."""
        end = mark(self._stream)
        measured = self._batches[-1]
        measured.marks.append(end)
        measured.is_complete = True
        measured.compiled, measured.eager = self._epoch_meter.compiled(), self._epoch_meter.ran_eager
        self._epoch_meter.end_step()

    @property
    def num_samples(self) -> int:
        """Of the last batch."""
        return self._batches[-1].num_samples

    def steps(self, batches_per_step: int) -> list[Step]:
        """The steps of the epoch; the device must have finished them."""
        return steps_of(self._batches, self._epoch_start, batches_per_step)


def steps_of(batches: list[MeasuredBatch], epoch_start: Any, batches_per_step: int) -> list[Step]:
    """The steps of an epoch's batches; the device must have finished them. A batch that broke off is left out.

    On a GPU only the part of a wait in which the device was idle counts: else the host was ahead of it.
    """
    complete = [batch for batch in batches if batch.is_complete]
    steps = []
    previous_end = epoch_start
    for first in range(0, len(complete), batches_per_step):
        group = complete[first : first + batches_per_step]
        step = Step(
            time_ms=0.0,
            period_ms=0.0,
            wait_ms=0.0,
            num_batches=len(group),
            compiled=False,
            work=tuple(batch.shape for batch in group),
        )
        for batch in group:
            if batch.resumed is not None:
                previous_end = batch.resumed
            step.time_ms += batch.time_ms()
            step.period_ms += milliseconds(previous_end, batch.marks[-1])
            step.wait_ms += min(batch.wait_ms, milliseconds(previous_end, batch.marks[0]))
            step.compiled |= batch.compiled
            step.eager |= batch.eager
            step.num_samples += batch.num_samples
            previous_end = batch.marks[-1]
        steps.append(step)
    return steps
