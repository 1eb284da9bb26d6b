"""The Lightning callback that measures a fit."""

from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from trainkit.metrics.epochs import EpochCost, EpochMeter, steps_by_epoch
from trainkit.metrics.steps import Step, classify, steady
from trainkit.metrics.summary import CompilerReport, summarize
from trainkit.metrics.timer import BatchClock, mark, milliseconds


@dataclass(slots=True)
class MeasuredBatch:
    """A batch of training: marks of its start and end on the device, and its share of a step."""

    wait_ms: float  # for the batch, on the host
    num_samples: int
    shape: tuple[int, ...]  # of the inputs
    start: Any = None
    end: Any = None  # None: broken off
    compiled: bool = False
    eager: bool = False


class Meters(Callback):
    """Measures every epoch of a fit, in `epochs`.

    A step is from the moment its first batch is there to the end of its optimizer step, so with accumulation it has
    several batches. A step during which anything compiled, the warm-up after it, and one with fewer batches than others
    are not steady; every figure of a step is one of steady steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[EpochCost] = []
        self.epoch_meter = EpochMeter()
        self.batch_clock = BatchClock()

    def on_train_epoch_start(self, trainer: Trainer, task: LightningModule) -> None:
        self.epoch_meter.begin(trainer.strategy.root_device)
        self._batches: list[MeasuredBatch] = []
        self._epoch_start = self._mark()

    def on_train_batch_start(self, trainer: Trainer, task: LightningModule, batch: Any, batch_idx: int) -> None:
        self.epoch_meter.begin_step()
        inputs = batch[0]
        measured = MeasuredBatch(self.batch_clock.lap_ms(), len(inputs), tuple(inputs.shape))
        self._batches.append(measured)
        measured.start = self._mark()

    def on_train_batch_end(
        self, trainer: Trainer, task: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        end = self._mark()
        measured = self._batches[-1]
        measured.end = end
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

    def _mark(self) -> Any:
        return mark(self.epoch_meter.device.type == "cuda")


def steps_of(batches: list[MeasuredBatch], epoch_start: Any, batches_per_step: int) -> list[Step]:
    """The steps of an epoch's batches; the device must have finished them. A batch that broke off is left out.

    On a GPU only the part of a wait in which the device was idle counts: else the host was ahead of it.
    """
    finished = [batch for batch in batches if batch.end is not None]
    steps = []
    previous_end = epoch_start
    for first in range(0, len(finished), batches_per_step):
        group = finished[first : first + batches_per_step]
        step = Step(
            time_ms=milliseconds(group[0].start, group[-1].end),
            period_ms=milliseconds(previous_end, group[-1].end),
            wait_ms=0.0,
            num_batches=len(group),
            compiled=False,
            work=tuple(batch.shape for batch in group),
        )
        for batch in group:
            step.wait_ms += min(batch.wait_ms, milliseconds(previous_end, batch.start))
            step.compiled |= batch.compiled
            step.eager |= batch.eager
            step.num_samples += batch.num_samples
            previous_end = batch.end
        steps.append(step)
    return steps
