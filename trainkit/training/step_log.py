"""What loggers get between epochs: loss, learning rate and gradient norm of every n-th step."""

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.optim import Optimizer

from trainkit.training.host_copy import HostCopy
from trainkit.training.task import Task


class StepLog(Callback):
    """Gives the loggers `step/loss`, `step/lr` and `step/grad_norm`: of the step's last batch, before clipping.

    The device is not waited for: the figures of a step are copied while training goes on, and logged at the next step
    that is due, or at the end of the epoch. Loggers get them from rank 0.
    """

    def __init__(self, every_n_steps: int):
        self._every_n_steps = every_n_steps
        self._learning_rate = 0.0
        self._norm: Tensor | None = None  # of the step that runs, if it is due
        self._copied: tuple[int, float, HostCopy] | None = None  # step, learning rate; loss and norm on their way

    def is_due(self, trainer: Trainer) -> bool:
        """Whether the step that runs is logged. The same on all ranks."""
        return bool(trainer.loggers) and (trainer.global_step + 1) % self._every_n_steps == 0

    def before_optimizer_step(self, trainer: Trainer) -> None:
        optimizer: Optimizer = trainer.optimizers[0]
        task = trainer.lightning_module
        assert isinstance(task, Task)
        self._learning_rate = float(optimizer.param_groups[0]["lr"])
        self._norm = task.gradient_norm(optimizer)

    def end_step(self, trainer: Trainer, loss: Tensor) -> None:
        """The step of the batch with this loss has ended."""
        if self._norm is None:
            return
        self.flush(trainer)
        figures = torch.stack([loss.float(), self._norm.float()])
        self._copied = (trainer.global_step, self._learning_rate, HostCopy(figures))
        self._norm = None

    def flush(self, trainer: Trainer) -> None:
        """Log the figures that have been copied."""
        copied, self._copied = self._copied, None
        if copied is None or not trainer.is_global_zero:
            return
        step, learning_rate, figures = copied
        loss, norm = figures.tolist()
        for logger in trainer.loggers:
            logger.log_metrics({"step/loss": loss, "step/lr": learning_rate, "step/grad_norm": norm}, step=step)

    def on_train_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        self.flush(trainer)

    def on_exception(self, trainer: Trainer, task: LightningModule, exception: BaseException) -> None:
        if not isinstance(exception, torch.AcceleratorError):  # after which CUDA answers nothing
            self.flush(trainer)
