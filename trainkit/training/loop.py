"""The loop over the batches of an epoch: Lightning's, with the training step of a plain PyTorch loop.

Lightning's own spends 0.3 to 1 ms on a batch, most of it inside of the step: hooks that nobody implements, contexts of
its profiler, copies of the loss, a closure inside of the optimizer's step. A network whose step takes 1 ms would be
measured with all of that, and the ratio of two of its compile modes would be nearer to 1 than it is.

Lightning has no public way to replace this loop; the underscored names here are those of 2.6, which pyproject.toml
demands. tests/training/test_loop.py holds this loop against Lightning's own: the same hooks in the same order, losses,
parameters and progress.
"""

from pathlib import Path
from typing import Any

from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.core.hooks import DataHooks
from lightning.pytorch.loops.fetchers import _DataFetcher
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.trainer import call
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.types import LRSchedulerConfig

from trainkit.distributed.stop import Stop
from trainkit.inputs import tensors_of
from trainkit.metrics.batches import BatchMeter
from trainkit.training import step
from trainkit.training.progress import ProgressWriter
from trainkit.training.step import TrainingStep
from trainkit.training.step_log import StepLog
from trainkit.training.task import Task

BATCH_HOOKS = ("on_train_batch_start", "on_train_batch_end")
TRANSFER_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


class StepLoop(_TrainingEpochLoop):
    """Trains a Task on the batches of an epoch, and has each batch measured.

    Outside of the step are waits for batches, the schedule, the sum of the losses and callbacks. A hook that no
    callback implements is not called.
    """

    def __init__(
        self,
        trainer: Trainer,
        meter: BatchMeter,
        stop: Stop,
        progress: ProgressWriter | None = None,
        log: StepLog | None = None,
    ):
        super().__init__(trainer, min_steps=trainer.fit_loop.min_steps)
        self._meter, self._stop, self._progress, self._log = meter, stop, progress, log
        self._steps_optimizer = False  # after the batch that is trained on

    def on_run_start(self, data_fetcher: _DataFetcher) -> None:
        trainer = self.trainer
        assert isinstance(trainer.lightning_module, Task)
        if trainer.fit_loop.restarted_mid_epoch:
            self._resume_epoch(data_fetcher, trainer.lightning_module)
        super().on_run_start(data_fetcher)
        self._task = trainer.lightning_module
        self._device = trainer.strategy.root_device
        self._num_ranks = trainer.world_size
        self._converts = is_overridden("convert_input", trainer.precision_plugin, parent=Precision)
        self._hooks = {hook for hook in (*BATCH_HOOKS, *step.HOOKS) if _has_listener(trainer, hook)}
        progress = self.automatic_optimization.optim_progress.optimizer
        self._step = TrainingStep(trainer, self._meter, self._hooks, progress, self._log)
        self._has_transfer_hooks = _has_transfer_hooks(trainer.datamodule)
        self._validates_inside = _validates_inside_of_epochs(trainer)

    def _resume_epoch(self, data_fetcher: _DataFetcher, task: Task) -> None:
        """Begin behind the batches that were trained on before the checkpoint. Lightning would begin with the epoch's
        first batch, and start no epoch."""
        call._call_callback_hooks(self.trainer, "on_train_epoch_start")
        call._call_lightning_module_hook(self.trainer, "on_train_epoch_start")
        num_batches = self.batch_progress.current.ready
        (loader,) = data_fetcher.combined_loader.flattened
        if hasattr(loader, "skip"):
            loader.skip(num_batches)
            iter(data_fetcher)
        else:  # a loader of the user's own
            for _ in range(num_batches):
                next(data_fetcher)
            data_fetcher.fetched = 0  # the caller counts them
        task.resume_epoch()

    def advance(self, data_fetcher: _DataFetcher) -> None:
        """Train on the next batch."""
        if self.restarting and self._prepare_restart(data_fetcher):
            return
        is_first = self.batch_progress.current.ready % self.trainer.accumulate_grad_batches == 0
        if is_first and not self._stop.begin_step():
            self._save_checkpoint()
            raise SIGTERMException
        batch = self._next_batch(data_fetcher)
        self.batch_progress.increment_ready()
        if self._hooks:
            self.trainer._logger_connector.on_batch_start(batch)
            call._call_callback_hooks(self.trainer, "on_train_batch_start", batch, self.batch_idx)
        self.batch_progress.increment_started()
        self._steps_optimizer = not self._should_accumulate()
        loss = self._step.train(batch, is_first, is_last=self._steps_optimizer)
        self.batch_progress.increment_processed()
        if self._steps_optimizer:
            self._step_schedule()
        self._task.count_batch(loss, batch)
        if self._log is not None and self._steps_optimizer:
            self._log.end_step(self.trainer, loss)
        if self._progress is not None:
            self._progress.end_batch(loss, self._meter.num_samples * self._num_ranks, self._steps_optimizer)
        if self._hooks:
            outputs = {"loss": loss / self.trainer.accumulate_grad_batches}  # as Lightning gives it
            call._call_callback_hooks(self.trainer, "on_train_batch_end", outputs, batch, self.batch_idx)
            self.trainer._logger_connector.on_batch_end()
        self.batch_progress.increment_completed()
        if self._hooks:
            self.trainer._logger_connector.update_train_step_metrics()

    def _prepare_restart(self, data_fetcher: _DataFetcher) -> bool:
        """Go on from a checkpoint, as Lightning does. Whether a validation comes before the next batch."""
        if self._should_check_val_fx(data_fetcher):
            if self.val_loop.restarted_mid_evaluation:
                return True
            if self.restarted_on_last:
                self._skip_next_val = True
                return True
            self.val_loop.increment_progress_to_evaluation_end()
        self.val_loop.restarting = False
        return False

    def _save_checkpoint(self) -> None:
        """Write `last.ckpt` where the run stops, which goes on from there with the next batch. Before the first batch
        of an epoch there is one."""
        if not self.batch_progress.current.ready:
            return
        for callback in self.trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.filename == "last":
                self.trainer.save_checkpoint(Path(str(callback.dirpath), "last.ckpt"))

    def _on_before_fetch(self) -> None:
        self._meter.begin_wait()

    def _on_after_fetch(self) -> None:
        self._meter.end_wait()

    def on_advance_end(self, data_fetcher: _DataFetcher) -> None:
        """As Lightning's, which looks after each batch whether to validate. Here only the last of an epoch can be
        followed by that, unless the Trainer has a `val_check_interval`."""
        trainer = self.trainer
        is_last = self._num_ready_batches_reached() or trainer.should_stop
        if self._validates_inside and not is_last:
            super().on_advance_end(data_fetcher)
            if not self.done:
                self._meter.resume_epoch()
        elif is_last or self._skip_next_val:
            super().on_advance_end(data_fetcher)
        elif self._steps_optimizer:
            self._batches_that_stepped += 1

    def teardown(self) -> None:
        super().teardown()
        self.__dict__.pop("_step", None)  # DDP, which holds a copy of the gradients

    def _next_batch(self, data_fetcher: _DataFetcher) -> Any:
        """The next batch, on the device."""
        batch, _, _ = next(data_fetcher)
        self.batch_progress.is_last_batch = data_fetcher.done
        if self._converts:
            batch = self.trainer.precision_plugin.convert_input(batch)
        if not self._has_transfer_hooks:
            is_there = all(tensor.device == self._device for tensor in tensors_of(batch))
            return batch if is_there else move_data_to_device(batch, self._device)
        batch = self._task._on_before_batch_transfer(batch, dataloader_idx=0)
        return self.trainer.strategy.batch_to_device(batch, dataloader_idx=0)

    def _step_schedule(self) -> None:
        schedules = self.trainer.lr_scheduler_configs
        if not schedules:
            return
        if len(schedules) == 1 and _steps_with_optimizer(schedules[0]):
            self.scheduler_progress.increment_ready()
            schedules[0].scheduler.step()
            self.scheduler_progress.increment_completed()
            return
        self.update_lr_schedulers("step", update_plateau_schedulers=False)  # a callback has changed the schedules
        if self._num_ready_batches_reached():
            self.update_lr_schedulers("epoch", update_plateau_schedulers=False)


def _has_listener(trainer: Trainer, hook: str) -> bool:
    """Whether a callback implements the hook, and does something there."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if is_overridden(hook, callback, parent=Callback) and not _saves_after_epochs_alone(callback):
            return True
    return False


def _saves_after_epochs_alone(callback: Callback) -> bool:
    """Whether a callback is Lightning's own ModelCheckpoint, which then does nothing in the hooks of batches."""
    if type(callback) is not ModelCheckpoint:
        return False
    return callback._every_n_train_steps < 1 and callback._train_time_interval is None


def _steps_with_optimizer(schedule: LRSchedulerConfig) -> bool:
    """Whether a schedule steps with each step of the optimizer."""
    return schedule.interval == "step" and schedule.frequency == 1 and not schedule.reduce_on_plateau


def _validates_inside_of_epochs(trainer: Trainer) -> bool:
    """Whether a validation may come before the end of an epoch: after a number of batches, or of seconds."""
    if trainer.val_check_batch is None or trainer.check_val_every_n_epoch is None:
        return True
    return trainer.val_check_batch < trainer.num_training_batches


def _has_transfer_hooks(data: LightningDataModule | None) -> bool:
    """Whether a data module has a way of its own to bring a batch to the device."""
    return data is not None and any(is_overridden(hook, data, parent=DataHooks) for hook in TRANSFER_HOOKS)
