"""The training on one batch, as a plain PyTorch loop does it."""

from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loops.progress import _OptimizerProgress
from lightning.pytorch.trainer import call
from torch import Tensor

from trainkit.distributed.strategies import gradient_accumulation
from trainkit.metrics.batches import BatchMeter
from trainkit.training.step_log import StepLog
from trainkit.training.task import Task

HOOKS = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")


class TrainingStep:
    """Forward, backward, clipping and the optimizer, in the order of Lightning, and measured.

    A batch is measured from the moment it is on the device to the end of its backward, or of the optimizer's step. The
    meter pauses while callbacks run. A hook that no callback implements (it is not in `hooks`) is not called.
    """

    def __init__(
        self,
        trainer: Trainer,
        meter: BatchMeter,
        hooks: set[str],
        progress: _OptimizerProgress,
        log: StepLog | None,
    ):
        assert isinstance(trainer.lightning_module, Task)
        assert trainer.strategy.model is not None
        self._trainer, self._meter, self._hooks, self._progress, self._log = trainer, meter, hooks, progress, log
        self._task = trainer.lightning_module
        self._model = trainer.strategy.model  # the task, or DDP around it
        self._accumulation = gradient_accumulation(self._model)
        self._optimizer = trainer.optimizers[0]
        self._scaler = trainer.scaler
        self._precision = trainer.precision_plugin
        self._num_batches = trainer.accumulate_grad_batches

    def train(self, batch: Any, is_first: bool, is_last: bool) -> Tensor:
        """Train on a batch, the first or the last of its step or neither, and return its loss.

        The first one's backward begins with zero gradients. After the last one's the optimizer steps.
        """
        self._meter.begin_batch(batch)
        if is_last:
            loss = self._forward_backward(batch, is_first)
            self._step_optimizer()
        else:
            with self._accumulation():
                loss = self._forward_backward(batch, is_first)
        self._meter.end_batch()
        return loss.detach()

    def _forward_backward(self, batch: Any, is_first: bool) -> Tensor:
        with self._precision.forward_context():
            loss: Tensor = self._model(*batch)
        if is_first:
            self._zero_grad()
        scaled_loss = loss
        if self._num_batches > 1:
            scaled_loss = scaled_loss / self._num_batches
        if self._scaler is not None:
            scaled_loss = self._scaler.scale(scaled_loss)
        self._call("on_before_backward", scaled_loss)
        scaled_loss.backward()
        self._call("on_after_backward")
        return loss

    def _zero_grad(self) -> None:
        self._progress.zero_grad.increment_ready()
        self._call("on_before_zero_grad", self._optimizer)
        self._progress.zero_grad.increment_started()
        self._optimizer.zero_grad()
        self._progress.zero_grad.increment_completed()

    def _step_optimizer(self) -> None:
        optimizer, scaler = self._optimizer, self._scaler
        self._progress.step.increment_ready()
        if scaler is not None and not getattr(optimizer, "_step_supports_amp_scaling", False):
            scaler.unscale_(optimizer)
        self._call("on_before_optimizer_step", optimizer)
        if self._log is not None and self._log.is_due(self._trainer):
            self._meter.pause_batch()
            self._log.before_optimizer_step(self._trainer)
            self._meter.resume_batch()
        if self._trainer.gradient_clip_val is not None:
            self._task.configure_gradient_clipping(optimizer, self._trainer.gradient_clip_val)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        self._progress.step.increment_completed()

    def _call(self, hook: str, *arguments: Any) -> None:
        """Call the callbacks that implement a hook. The step's time is without theirs."""
        if hook in self._hooks:
            self._meter.pause_batch()
            call._call_callback_hooks(self._trainer, hook, *arguments)
            self._meter.resume_batch()
