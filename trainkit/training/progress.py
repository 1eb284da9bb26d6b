"""Writes a run's Progress while it trains."""

from collections import Counter

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from trainkit.results.progress import Progress
from trainkit.training.host_copy import HostCopy


class ProgressWriter(Callback):
    """Keeps a Progress up to date. Lightning calls it around epochs, the training loop after each batch."""

    def __init__(self, progress: Progress, max_steps: int, compiles: bool):
        self.progress, self._max_steps, self._compiles = progress, max_steps, compiles  # -1: no limit
        self._loss: HostCopy | None = None  # on its way
        self._num_compiles: Counter[str] = Counter()  # by kind

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        stage = "training"
        if self._compiles:
            stage += "; the network is compiled in its first step and in its first validation"
        self.progress.on_stage(stage)

    def begin_compile(self, kind: str) -> None:
        self._num_compiles[kind] += 1
        self.progress.num_tuned = self.progress.num_kernels = 0
        noun = "CUDA graph" if kind == "cudagraph" else f"{kind} graph"
        if kind == "recompile":
            noun = "recompile"
        self.progress.compiling = f"{noun} {self._num_compiles[kind]}"

    def end_compile(self) -> None:
        self.progress.compiling = None

    def on_train_epoch_start(self, trainer: Trainer, task: LightningModule) -> None:
        progress, batches_per_step = self.progress, trainer.accumulate_grad_batches
        progress.epoch, progress.max_epochs = trainer.current_epoch, trainer.max_epochs or 0
        progress.step = trainer.fit_loop.epoch_loop.batch_progress.current.ready // batches_per_step
        if not trainer.fit_loop.restarted_mid_epoch:
            progress.step = 0
        progress.steps_per_epoch = progress.steps_left = None
        if trainer.num_training_batches != float("inf"):
            progress.steps_per_epoch = -(-int(trainer.num_training_batches) // batches_per_step)
            num_epochs = progress.max_epochs - progress.epoch
            progress.steps_left = num_epochs * progress.steps_per_epoch - progress.step
            if self._max_steps > 0:
                progress.steps_left = min(progress.steps_left, self._max_steps - trainer.global_step)
        progress.phase = "training"

    def end_batch(self, loss: Tensor, num_samples: int, is_step: bool) -> None:
        """A batch of so many samples, on all ranks, has been trained on, the last of its step or not."""
        progress = self.progress
        progress.num_samples += num_samples
        if is_step:
            progress.step += 1
            progress.num_steps += 1
            if progress.steps_left is not None:
                progress.steps_left -= 1
        if self._loss is None:
            if progress.wants_loss:
                progress.wants_loss = False
                self._loss = HostCopy(loss)
        elif self._loss.is_done():
            (progress.loss,) = self._loss.tolist()
            self._loss = None

    def on_validation_start(self, trainer: Trainer, task: LightningModule) -> None:
        self.progress.phase = "validating"

    def on_validation_end(self, trainer: Trainer, task: LightningModule) -> None:
        self.progress.phase = "training"

    def on_train_end(self, trainer: Trainer, task: LightningModule) -> None:
        self.progress.phase = "finishing"
