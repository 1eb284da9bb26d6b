"""What is trained: the one LightningModule. It knows no model and no data set."""

import random
from collections.abc import Callable
from contextlib import nullcontext
from math import cos, pi
from typing import Any

import torch
from lightning import LightningModule, seed_everything
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, Optimizer  # AdamW is an Adam
from torch.optim.lr_scheduler import LambdaLR

from trainkit.compiler import regions
from trainkit.compiler.apply import Compiler
from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.training.loss import linear_cross_entropy, logits_of


class Objective(nn.Module):
    """A network and its loss: mean cross entropy over the last dimension of the logits.

    forward(inputs, targets [...]) with `net(prepare(inputs))` giving logits [..., C] returns the mean loss in training,
    and (mean loss, number of right predictions) in evaluation. One class of ours, so that torch.compile takes what
    prepares the data (augmentation), the network and the loss into one graph, in which the logits need not be written
    out in float32.

    A language model may promise how its logits come about, by an attribute `logits_are_head_of_features = True`:
    `net(x) == net.head(net.features(x))`, head an nn.Linear without bias. Under bfloat16 autocast it then trains with
    `linear_cross_entropy`, in every mode. Not with whole_net, by which the network is called, and compiled, alone.
    """

    def __init__(self, net: nn.Module, prepare: nn.Module | None = None, whole_net: bool = False):
        super().__init__()
        self.net: Any = net
        self.prepare = prepare or nn.Identity()
        self.whole_net = whole_net or not getattr(net, "logits_are_head_of_features", False)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        inputs = self.prepare(inputs)
        if self.training and not self.whole_net and autocast_dtype(inputs) == torch.bfloat16:
            features = self.net.features(inputs).flatten(0, -2).bfloat16()  # [N, D]
            return linear_cross_entropy(features, self.net.head.weight.bfloat16(), targets.flatten())
        logits = logits_of(self.net(inputs))
        loss = cross_entropy(logits.flatten(0, -2), targets.flatten())
        return loss if self.training else (loss, (logits.argmax(-1) == targets).sum())


class Forward(nn.Module):
    """A network and what prepares its inputs, without a loss: inputs -> logits [..., C]."""

    def __init__(self, net: nn.Module, prepare: nn.Module):
        super().__init__()
        self.net: Any = net
        self.prepare = prepare

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = logits_of(self.net(self.prepare(inputs)))
        return logits


AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}  # by amp.precision


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    """The type that autocast computes in where this tensor lies; None where it is off."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


class ChannelsLast(nn.Module):
    """Images [B, C, H, W] in torch.channels_last; other inputs as they are."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs


class SkippedSteps:
    """Counts the steps that a GradScaler skips: a gradient was not finite, and its scale is smaller afterwards.

    Exact, and counted on the device: nothing waits before `count()`. Ranks have the same gradients and the same count.
    """

    def __init__(self, scaler: GradScaler, device: torch.device):
        self._scaler, self._one = scaler, torch.ones((), device=device)
        self._scale = scaler.scale(self._one)
        self._count = torch.zeros((), dtype=torch.int64, device=device)

    def after_batch(self) -> None:
        """Look at the scale; between two looks is one `scaler.update()` at most."""
        scale = self._scaler.scale(self._one)  # get_scale() would wait for the device
        self._count += scale < self._scale
        self._scale = scale

    def count(self) -> int:
        return int(self._count)


class Task(LightningModule):
    """Trains and validates an Objective.

    `train_loss`, `val_loss`, `val_accuracy` are those of the last epoch, means over all samples of all ranks.
    `num_skipped_steps` is the last epoch's, None without a GradScaler. A step that it skips is a step all the same: of
    `max_steps`, of the schedule, of every figure; the parameters and the optimizer's state stay as they were.
    Randomness (dropout) in an epoch is a function of seed, epoch and rank alone, so that a run resumed at the end of
    an epoch goes on as if it had never stopped. Raises ConfigError where the network has nothing that it could be
    transformed in as asked.
    """

    def __init__(
        self,
        net: nn.Module,
        compiler: Compiler,
        optimizer: Callable[..., Optimizer],
        config: RunConfig,
        prepare: nn.Module | None = None,
    ):
        super().__init__()
        self.objective = objective_of(config, net, prepare)
        self.train_loss: float | None = None
        self.val_loss: float | None = None
        self.val_accuracy: float | None = None
        self.num_val_targets: int | None = None
        self.num_skipped_steps: int | None = None
        self._configured = False
        self._compiler, self._optimizer, self._config = compiler, optimizer, config

    def configure_model(self) -> None:
        """The order of transformations: `objective_of` at the start, compile in place here; then Lightning moves it to
        the device, loads a checkpoint and wraps with DDP, which all keep the layout.

        Lightning calls it for every fit, and it happens once."""
        if self._configured:
            return
        self._configured = True
        self._compiler.apply(self.objective, self._config.ddp.optimize_ddp)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        optimizer = self._optimizer(self.parameters())
        optimizer.register_load_state_dict_pre_hook(as_asked_now)
        trainer = self._config.trainer
        total = int(self.trainer.estimated_stepping_batches)
        total = min(total, trainer.max_steps) if trainer.max_steps > 0 else total
        factor = schedule(trainer.schedule.value, trainer.warmup_steps, total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Limit the norm of all gradients, as `nn.utils.clip_grad_norm_` does. Nothing waits for the device."""
        if gradient_clip_val is None or not clips_in_kernel(optimizer):
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        else:
            clip_in_kernel(optimizer, gradient_clip_val, self.trainer.scaler)

    def on_train_epoch_start(self) -> None:
        mixed = random.Random(f"{self._config.seed} {self.current_epoch} {self.global_rank}")
        seed_everything(mixed.getrandbits(32), verbose=False)
        self._loss_sum = torch.zeros((), device=self.device)
        self._num_targets = 0
        scaler = self.trainer.scaler
        self._skipped = None if scaler is None else SkippedSteps(scaler, self.device)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = self._compiler(*batch)
        num_targets = batch[1].numel()
        self._loss_sum += loss.detach() * num_targets
        self._num_targets += num_targets
        return loss

    def on_train_batch_end(self, outputs: object, batch: object, batch_idx: int) -> None:
        if self._skipped is not None:
            self._skipped.after_batch()
        # Not Lightning's max_steps: with it a resumed run ends an epoch that it has not begun.
        if self.global_step == self._config.trainer.max_steps:
            self.trainer.should_stop = True

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Say whether the epoch was at its end: only from there a resumed run is the uninterrupted one."""
        checkpoint["end_of_epoch"] = self.trainer.is_last_batch

    def finish_train_epoch(self) -> None:
        """Set `train_loss` (mean over the epoch's targets and the ranks, which have equally many) and
        `num_skipped_steps`."""
        total = self.trainer.strategy.reduce(self._loss_sum / max(self._num_targets, 1), reduce_op="mean")
        self.train_loss = float(total)
        self.num_skipped_steps = None if self._skipped is None else self._skipped.count()

    def on_validation_epoch_start(self) -> None:
        self.finish_train_epoch()  # here too: what was trained is known where validation fails
        self.val_loss = self.val_accuracy = None
        # Ranks train with batch statistics of their own; validation is of one network: rank 0's, as in a checkpoint.
        if self.trainer.world_size > 1:
            for buffer in self.objective.buffers():
                torch.distributed.broadcast(buffer, src=0)
        self._val_sums = torch.zeros(3, device=self.device, dtype=torch.float64)  # loss * targets, right, targets

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        loss, num_right = self._compiler(*batch)
        num_targets = batch[1].numel()
        self._val_sums[0] += loss * num_targets
        self._val_sums[1] += num_right
        self._val_sums[2] += num_targets

    def on_validation_epoch_end(self) -> None:
        loss_sum, num_right, num_targets = self.trainer.strategy.reduce(self._val_sums, reduce_op="sum").tolist()
        self.val_loss, self.val_accuracy = loss_sum / num_targets, num_right / num_targets
        self.num_val_targets = int(num_targets)
        # For ModelCheckpoint's monitor alone; loggers get the epoch's record.
        self.log("val/loss", self.val_loss, logger=False, sync_dist=True)


def clips_in_kernel(optimizer: Optimizer) -> bool:
    """Whether `clip_in_kernel` can clip for this optimizer."""
    return isinstance(optimizer, Adam | SGD) and bool(optimizer.defaults["fused"])


def clip_in_kernel(optimizer: Optimizer, max_norm: float, scaler: GradScaler | None) -> None:
    """Limit the norm of all gradients in the optimizer's next step.

    The kernel of a fused optimizer divides the gradients by `grad_scale` as it reads them, which spares a pass over
    them. A GradScaler leaves them scaled for it, and multiplies what is set here by its own scale."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if scaler is not None:
        norm = norm / scaler.scale(torch.ones_like(norm))
    optimizer.grad_scale = ((norm + 1e-6) / max_norm).clamp(min=1.0)  # type: ignore[attr-defined]


def schedule(kind: str, warmup_steps: int, total_steps: int) -> Callable[[int], float]:
    """The learning rate's factor at each optimizer step: linear warm-up, then constant, or a half cosine to 0."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        if kind == "constant":
            return 1.0
        progress = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
        return (1 + cos(pi * min(progress, 1.0))) / 2

    return factor


def as_asked_now(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The optimizer's state of a checkpoint for the implementation that is asked for now, and in the layout that the
    parameters have now: torch takes both from the checkpoint, and fused kernels need one layout."""
    asked = {name: optimizer.defaults[name] for name in ("fused", "foreach") if name in optimizer.defaults}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def laid_out(value: Any, parameter: Tensor) -> Any:
        if not isinstance(value, Tensor) or value.shape != parameter.shape:
            return value
        return torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)

    return {
        "param_groups": [group | asked for group in state_dict["param_groups"]],
        "state": {
            number: {name: laid_out(value, parameters[number]) for name, value in state.items()}
            for number, state in state_dict["state"].items()
        },
    }


def objective_of(config: RunConfig, net: nn.Module, prepare: nn.Module | None = None) -> Objective:
    """What a config trains, as it is before it is compiled: with channels_last, then with checkpointed blocks.

    Raises ConfigError where the network has nothing to do that to."""
    objective = Objective(net, prepare, whole_net=config.compile.scope.value == "net")
    if config.trainer.channels_last:
        channels_last(objective)
    if config.trainer.activation_checkpointing:
        checkpoint_blocks(objective.net)
    return objective


def mixed(call: Callable[..., Any], batch: tuple[Tensor, ...], precision: str) -> Any:
    """What `call(*batch)` returns in this amp.precision, outside of a Trainer: as in Lightning's
    MixedPrecision autocast is of the forward alone, and keeps no cache of casted weights."""
    dtype = AUTOCAST.get(precision)
    with torch.autocast(batch[0].device.type, dtype, cache_enabled=False) if dtype else nullcontext():
        return call(*batch)


def channels_last(objective: Objective | Forward) -> None:
    """Lay 4-d weights out as torch.channels_last, and images in the graph, after what prepares them. Checkpoint keys,
    shapes and values stay as they are. Raises ConfigError where no weight is 4-d."""
    if not any(parameter.ndim == 4 for parameter in objective.net.parameters()):
        raise ConfigError(
            f"trainer.channels_last = True: {type(objective.net).__name__} has no 4-d weights (convolutions); "
            "set it to false"
        )
    objective.net.to(memory_format=torch.channels_last)
    objective.prepare = nn.Sequential(objective.prepare, ChannelsLast())


def checkpoint_blocks(net: nn.Module) -> None:
    """Recompute each block in backward instead of keeping its activations; checkpoint keys stay as they are.
    BatchNorm's running statistics move in both of its forward passes.

    Raises ConfigError where the network has no blocks (scope.blocks).
    """
    blocks = set(regions.blocks(net).values())
    if not blocks:
        raise ConfigError(
            f"trainer.activation_checkpointing = True: {type(net).__name__} has no blocks to checkpoint "
            "(modules with layers of their own, in an nn.ModuleList or nn.Sequential or several of one class); set it "
            "to false"
        )
    apply_activation_checkpointing(net, check_fn=lambda module: module in blocks)
