"""The Lightning callback that measures a fit."""

from dataclasses import replace
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from trainkit.metrics.batches import BatchMeter
from trainkit.metrics.epochs import EpochCost, EpochMeter, steps_by_epoch
from trainkit.metrics.steps import Step, classify, steady
from trainkit.metrics.summary import CompilerReport, summarize


class Meters(Callback):
    """Measures every epoch of a fit, in `epochs`.

    A step is the time of its batches, with accumulation several: each from the moment it is there to the end of its
    backward, the last to the end of the optimizer's step. A step during which anything compiled, the warm-up after it,
    and one with fewer batches than others are not steady; every figure of a step is one of steady steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[EpochCost] = []
        self.epoch_meter = EpochMeter()
        self.batch_meter = BatchMeter(self.epoch_meter)

    def on_train_epoch_start(self, trainer: Trainer, task: LightningModule) -> None:
        self._from_start = not trainer.fit_loop.restarted_mid_epoch
        self.epoch_meter.begin(trainer.strategy.root_device)
        self.batch_meter.begin_epoch()

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
        steps = self.batch_meter.steps(trainer.accumulate_grad_batches)
        cost = self.epoch_meter.cost(steps, complete)
        self.epochs.append(replace(cost, from_start=self._from_start, to_end=trainer.is_last_batch))
