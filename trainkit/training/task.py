"""The one LightningModule. It knows no network and no data set."""

import random
from math import nan
from typing import Any

import torch
from lightning import LightningModule, seed_everything
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from trainkit.compiler import regions
from trainkit.compiler.apply import target_module
from trainkit.compiler.compiler import Compiler
from trainkit.config.schema import RunConfig
from trainkit.distributed.collectives import gather
from trainkit.distributed.replicas import CompiledReplicas, average_gradients
from trainkit.distributed.sharded_optimizer import OptimizerShards
from trainkit.distributed.shards import ShardedBlocks, shard
from trainkit.inputs import shape_of
from trainkit.training.criterion import Criterion
from trainkit.training.loss import IGNORE_INDEX
from trainkit.training.metric import Metric
from trainkit.training.network import plain_config
from trainkit.training.objective import build_objective
from trainkit.training.optimizer import (
    OptimizerFactory,
    SkippedSteps,
    adapt_checkpoint_state,
    clip_in_kernel,
    clips_in_kernel,
    gradient_norm,
    has_schedule,
    is_sharded,
    optimized_parameters,
    schedule_factor,
)
from trainkit.training.precision import AUTOCAST_DTYPES
from trainkit.training.rng import restore_rng_state, rng_state


class LossSum:
    """The sum of loss * targets over the batches of an epoch, kept on the device."""

    def __init__(self, device: torch.device):
        self._sum = torch.zeros((), device=device)
        self._num_targets = 0

    def add(self, loss: Tensor, num_targets: int) -> None:
        self._sum.add_(loss, alpha=num_targets)
        self._num_targets += num_targets

    def mean(self) -> Tensor:
        return self._sum / max(self._num_targets, 1)

    def state(self) -> tuple[float, int]:
        return float(self._sum), self._num_targets

    def restore(self, state: tuple[float, int]) -> None:
        loss_sum, self._num_targets = state
        self._sum.fill_(loss_sum)


class Task(LightningModule):
    """Trains and validates an Objective.

    `train_loss`, `val_loss` (means over all targets of all ranks) and `val_metric` belong to the last epoch.
    `num_skipped_steps` belongs to the last epoch; None without a GradScaler. A skipped step counts as a step, of
    `max_steps`, of the schedule and of every figure, but leaves the parameters and the optimizer's state as they were.

    The random numbers (dropout) of an epoch depend on seed, epoch and rank alone, so a run that resumes at the end of
    an epoch continues as if it had never stopped. A checkpoint inside of an epoch stores the state of each rank: to
    derive the numbers from the step instead would seed within every step that is measured.

    Raises ConfigError if the network has nothing to transform as requested.
    """

    def __init__(
        self,
        net: nn.Module,
        compiler: Compiler,
        optimizer: OptimizerFactory,
        config: RunConfig,
        prepare: nn.Module | None = None,
        criterion: Criterion | None = None,
    ):
        super().__init__()
        self.objective = build_objective(config, net, prepare, criterion)
        self.train_loss: float | None = None
        self.val_loss: float | None = None
        self.val_metric: float | None = None
        self.num_val_targets: int | None = None
        self.num_skipped_steps: int | None = None
        self.shards: OptimizerShards | None = None  # with ddp.shard_optimizer
        self._compiled = False
        self._epoch_to_resume: dict[str, Any] | None = None  # as `on_save_checkpoint` stores it, of this rank
        self._compiler, self._optimizer, self._config = compiler, optimizer, config

    @property
    def metric(self) -> Metric | None:
        return self.objective.criterion.metric

    def configure_model(self) -> None:
        """Compile the objective in place and shard it, once. Lightning calls this hook for every fit."""
        if self._compiled:
            return
        self._compiled = True
        config, strategy = self._config, self.trainer.strategy
        autocast_dtype = AUTOCAST_DTYPES.get(config.amp.precision)
        if isinstance(strategy, CompiledReplicas):
            target = target_module(config.compile, self.objective)
            if config.ddp.shard_optimizer:
                self.shards = OptimizerShards(target, config.ddp, autocast_dtype)
            else:
                average_gradients(target, config.ddp)
        self._compiler.apply(self.objective, config.ddp)
        if isinstance(strategy, ShardedBlocks):
            blocks = regions.blocks(self.objective.net).values()
            shard(self.objective, blocks, strategy.data_parallel_mesh, autocast_dtype)

    def forward(self, *batch: Tensor) -> Any:
        """The objective's outputs. DDP calls it: the training loop calls what `Trainer.model` is."""
        return self._compiler(*batch)

    def configure_optimizers(self) -> Optimizer | OptimizerLRSchedulerConfig:
        """The optimizer, with its schedule if it has one: to schedule a constant rate would cost each step time."""
        optimizer = self._optimizer(self.objective)
        if self.shards is not None:
            self.shards.divide(optimizer)
        optimizer.register_load_state_dict_pre_hook(adapt_checkpoint_state)
        settings = self._config.trainer
        if not has_schedule(settings):
            return optimizer
        total_steps = int(self.trainer.estimated_stepping_batches)
        if settings.max_steps > 0:
            total_steps = min(total_steps, settings.max_steps)
        factor = schedule_factor(settings.schedule, settings.warmup_steps, total_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Limit the norm of all gradients, as `nn.utils.clip_grad_norm_` does, without waiting for the device."""
        if gradient_clip_val is not None and clips_in_kernel(optimizer):
            clip_in_kernel(optimizer, gradient_clip_val, self.gradient_norm(optimizer))
        elif gradient_clip_val is not None and (self.shards is not None or is_sharded(optimizer)):
            # Lightning refuses to clip for fused optimizers: their gradients may be scaled. Sharded ones never are.
            norm = self.gradient_norm(optimizer)
            nn.utils.clip_grads_with_norm_(optimized_parameters(optimizer), gradient_clip_val, norm)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def gradient_norm(self, optimizer: Optimizer) -> Tensor:
        """The norm of all gradients before the optimizer's step, on the device. All ranks call it."""
        norm = gradient_norm(optimizer, self.trainer.scaler)
        if self.shards is not None:
            norm = self.shards.norm_of_all(norm)
        return norm

    def on_train_epoch_start(self) -> None:
        epoch_seed = random.Random(f"{self._config.seed} {self.current_epoch} {self.global_rank}")
        seed_everything(epoch_seed.getrandbits(32), verbose=False)
        self._losses = LossSum(self.device)
        self._skipped_steps: SkippedSteps | None = None
        if self.trainer.scaler is not None:
            self._skipped_steps = SkippedSteps(self.trainer.scaler, self.device)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """For a Trainer with Lightning's own loop, which a profiling epoch has. StepLoop calls `forward`."""
        loss: Tensor = self._compiler(*batch)
        return loss

    def count_batch(self, loss: Tensor, batch: tuple[Tensor, Tensor]) -> None:
        """Add a batch that was trained on to the figures of the epoch. Ends the training after `max_steps`."""
        self._losses.add(loss, count_targets(batch[1]))
        if self._skipped_steps is not None:
            self._skipped_steps.after_batch()
        # Lightning's own max_steps would make a resumed run end an epoch that it has not begun.
        max_steps = self._config.trainer.max_steps
        if max_steps > 0 and self.global_step == max_steps:
            self.trainer.should_stop = True

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the config, whether the epoch was complete, and if not, the state of each rank, to go on with the next
        batch."""
        checkpoint["config"] = plain_config(self._config)
        checkpoint["end_of_epoch"] = self.trainer.is_last_batch
        if self.trainer.is_last_batch:
            return
        state: dict[str, Any] = {"rng": rng_state(self.device), "losses": self._losses.state()}
        if self._skipped_steps is not None:
            state["num_skipped_steps"] = self._skipped_steps.count()
        checkpoint["ranks"] = gather(state)
        # `max_steps` ends an epoch early, which Lightning takes for its end.
        for progress in checkpoint["loops"]["fit_loop"]["epoch_progress"].values():
            progress["processed"] = progress["completed"] = progress["ready"] - 1

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if "ranks" in checkpoint:
            self._epoch_to_resume = checkpoint["ranks"][self.global_rank]

    def resume_epoch(self) -> None:
        """Go on inside of the epoch that has been started, from the state in the checkpoint."""
        state, self._epoch_to_resume = self._epoch_to_resume, None
        if state is None:
            return
        restore_rng_state(state["rng"], self.device)
        self._losses.restore(state["losses"])
        if self._skipped_steps is not None:
            self._skipped_steps.restore(state.get("num_skipped_steps", 0))

    def finish_train_epoch(self) -> None:
        """Set `train_loss` (the mean over the epoch's targets and the ranks) and `num_skipped_steps`."""
        loss = self._losses.mean()
        self.train_loss = float(self.trainer.strategy.reduce(loss, reduce_op="mean"))  # ranks have equally many targets
        self.num_skipped_steps = None
        if self._skipped_steps is not None:
            self.num_skipped_steps = self._skipped_steps.count()

    def on_validation_epoch_start(self) -> None:
        if self.shards is not None:
            self.shards.gather_parameters()
        self.finish_train_epoch()  # so that the training loss is known even if validation fails
        self.val_loss = self.val_metric = None
        # BatchNorm's statistics differ between ranks. Validate one network: rank 0's, which checkpoints store.
        if self.trainer.world_size > 1:
            for buffer in self.objective.buffers():
                torch.distributed.broadcast(buffer, src=0)
        if self.metric is not None:
            self.metric.reset(self.device)
        self._val_sums = torch.zeros(2, device=self.device, dtype=torch.float64)  # of loss * targets, and of targets

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        loss, scored = self._compiler(*batch, is_rest=self._is_rest(batch, batch_idx))
        num_targets = count_without_ignored(batch[1])
        if isinstance(num_targets, Tensor):  # the mean loss of no targets is nan, and so is nan * 0
            loss = loss.where(num_targets > 0, 0.0)
        self._val_sums[0] += loss * num_targets
        self._val_sums[1] += num_targets
        if self.metric is not None:
            self.metric.update(scored)

    def _is_rest(self, batch: tuple[Any, Any], batch_idx: int) -> bool:
        """Whether this is the last batch of a validation, and shorter than its first one."""
        num_samples = shape_of(batch[0])[0]
        if batch_idx == 0:
            self._val_batch_size = num_samples
        is_last = batch_idx + 1 == self.trainer.num_val_batches[0]
        return is_last and num_samples < self._val_batch_size

    def on_validation_epoch_end(self) -> None:
        """Set the figures of the validation, and log them for callbacks: `val/loss` and `val/NAME` of the metric.
        Loggers get the record of the epoch."""
        loss_sum, num_targets = self._sum_over_ranks(self._val_sums).tolist()
        self.val_loss = loss_sum / num_targets if num_targets else nan
        self.num_val_targets = int(num_targets)
        self.log("val/loss", self.val_loss, logger=False, sync_dist=True)
        if self.metric is None:
            return
        self.val_metric = self.metric.compute(self._sum_over_ranks)
        if self.val_metric is not None:
            self.log(f"val/{self.metric.name}", self.val_metric, logger=False, sync_dist=True)

    def _sum_over_ranks(self, tensor: Tensor) -> Tensor:
        total: Tensor = self.trainer.strategy.reduce(tensor, reduce_op="sum")
        return total

    def on_train_end(self) -> None:
        if self.shards is not None:
            self.shards.gather_parameters()

    def on_train_epoch_end(self) -> None:
        if self.train_loss is not None:
            self.log("train/loss", self.train_loss, logger=False, sync_dist=True)


def count_targets(targets: Any) -> int:
    """The weight of a batch in a mean over targets: the elements of a tensor, 1 for other targets."""
    return targets.numel() if isinstance(targets, Tensor) else 1


def count_without_ignored(targets: Any) -> int | Tensor:
    """The same without the classes that a mean cross entropy ignores, counted on the device."""
    if isinstance(targets, Tensor) and targets.dtype == torch.int64:
        return (targets != IGNORE_INDEX).sum()
    return count_targets(targets)
