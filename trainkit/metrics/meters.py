"""The Lightning callback that measures a fit."""

from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from trainkit.metrics.epochs import EpochCost, EpochMeter, steps_by_epoch
from trainkit.metrics.steps import Step, classify, steady
from trainkit.metrics.summary import CompilerReport, summarize
from trainkit.metrics.timer import current_stream, mark, milliseconds


@dataclass(slots=True)
class MeasuredBatch:
    """A batch of training: marks of its time on the device, and its share of a step."""

    wait_ms: float  # for the batch, on the host
    num_samples: int
    shape: tuple[int, ...]  # of the inputs
    marks: list[Any]  # of its start, of the start and the end of each pause, and of its end
    is_complete: bool = False  # else it was broken off
    compiled: bool = False
    eager: bool = False

    def time_ms(self) -> float:
        """Milliseconds without the pauses."""
        starts, ends = self.marks[::2], self.marks[1::2]
        return sum(milliseconds(start, end) for start, end in zip(starts, ends, strict=True))


class Meters(Callback):
    """Measures every epoch of a fit, in `epochs`.

    The training loop says when it waits for a batch and when it trains on one. A step is the time of its batches, with
    accumulation several: each from the moment it is there to the end of its backward, the last to the end of the
    optimizer's step. A step during which anything compiled, the warm-up after it, and one with fewer batches than
    others are not steady; every figure of a step is one of steady steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[EpochCost] = []
        self.epoch_meter = EpochMeter()

    def on_train_epoch_start(self, trainer: Trainer, task: LightningModule) -> None:
        self.epoch_meter.begin(trainer.strategy.root_device)
        self._batches: list[MeasuredBatch] = []
        self._stream = current_stream(self.epoch_meter.device)
        self._epoch_start = mark(self._stream)

    def begin_wait(self) -> None:
        """The training loop asks for a batch."""
        self._wait_start = mark()

    def end_wait(self) -> None:
        """The batch has come."""
        self._wait_ms = milliseconds(self._wait_start, mark())

    def begin_batch(self, batch: Any) -> None:
        """The batch is on the device: training on it begins."""
        self.epoch_meter.begin_step()
        shape = batch[0].shape
        self._batches.append(MeasuredBatch(self._wait_ms, shape[0], tuple(shape), marks=[mark(self._stream)]))

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
        measured.compiled, measured.eager = self.epoch_meter.compiled(), self.epoch_meter.ran_eager
        self.epoch_meter.end_step()

    def on_validation_start(self, trainer: Trainer, task: LightningModule) -> None:
        self.epoch_meter.begin_validation()

    def on_validation_end(self, trainer: Trainer, task: LightningModule) -> None:
        self.epoch_meter.end_validation()

    def on_train_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        self._end_epoch(trainer, complete=True)

    def on_exception(self, trainer: Trainer, task: LightningModule, exception: BaseException) -> None:
        """Keep the measurements of an epoch that broke off, of this rank alone: the others may be gone."""
        # After an AcceleratorError CUDA answers nothing.
        if self.epoch_meter.is_open and not isinstance(exception, torch.AcceleratorError):
            self.epoch_meter.compile_clock.stop_all()
            self._end_epoch(trainer, complete=False)

    def steady_steps(self) -> list[list[Step]]:
        """The steady steps of each epoch so far."""
        epochs = steps_by_epoch(self.epochs)
        return [steady(steps, kinds) for steps, kinds in zip(epochs, classify(epochs), strict=True)]

    def summary(self, report: CompilerReport) -> dict[str, Any]:
        """The columns of a row on time and memory."""
        kinds = classify(steps_by_epoch(self.epochs))
        return summarize(self.epochs, kinds, self.epoch_meter.compile_clock, report)

    def _end_epoch(self, trainer: Trainer, complete: bool) -> None:
        self.epoch_meter.end()
        steps = steps_of(self._batches, self._epoch_start, trainer.accumulate_grad_batches)
        self.epochs.append(self.epoch_meter.cost(steps, complete))


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
            period_ms=milliseconds(previous_end, group[-1].marks[-1]),
            wait_ms=0.0,
            num_batches=len(group),
            compiled=False,
            work=tuple(batch.shape for batch in group),
        )
        for batch in group:
            step.time_ms += batch.time_ms()
            step.wait_ms += min(batch.wait_ms, milliseconds(previous_end, batch.marks[0]))
            step.compiled |= batch.compiled
            step.eager |= batch.eager
            step.num_samples += batch.num_samples
            previous_end = batch.marks[-1]
        steps.append(step)
    return steps
