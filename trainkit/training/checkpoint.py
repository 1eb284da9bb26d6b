"""The checkpoint that a run resumes from, shown to fit before any device is touched."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.results.files import read_row
from trainkit.training.checkpoint_file import NET_PREFIX, read_checkpoint
from trainkit.training.optimizer import OptimizerFactory, has_schedule

LOSS_PREFIX = "objective.loss."
# A checkpoint's entries beside the parameters, without which training does not go on as if it had never stopped
RESUMED = ("optimizer_states", "loops", "callbacks")


class TrainingEndedError(ConfigError):
    """A checkpoint has finished all the steps or epochs that are requested."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a run, read onto the CPU."""

    path: Path
    content: dict[str, Any]  # as Lightning writes it

    @property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """The parameters and buffers."""
        return dict(self.content["state_dict"])

    @property
    def net_state(self) -> dict[str, torch.Tensor]:
        """Those of the network, by their names in it; the loss may have some, too."""
        state = {}
        for name, tensor in self.state_dict.items():
            if not name.startswith(LOSS_PREFIX):
                state[name.removeprefix(NET_PREFIX)] = tensor
        return state

    @property
    def num_steps(self) -> int:
        return int(self.content["global_step"])

    @property
    def num_epochs(self) -> int:
        """The complete epochs."""
        return int(self.content["epoch"]) + self.end_of_epoch

    @property
    def end_of_epoch(self) -> bool:
        return bool(self.content.get("end_of_epoch", False))

    @property
    def optimizer_settings(self) -> dict[str, Any]:
        """Those of the first parameter group."""
        return dict(self.content["optimizer_states"][0]["param_groups"][0])


def load(config: RunConfig, net: nn.Module) -> Checkpoint | None:
    """The checkpoint of `ckpt_path`, whole and of this network. None if `ckpt_path` is null.

    `last` is the last checkpoint of the run directory, or else of the newest run of this model and data. Raises
    ConfigError.
    """
    if config.ckpt_path is None:
        return None
    subject = f"ckpt_path = {config.ckpt_path}"
    path = _find(config, subject)
    checkpoint = Checkpoint(path, read_checkpoint(path, subject))
    shapes = {name: tensor.shape for name, tensor in net.state_dict().items()}
    loaded_shapes = {name: tensor.shape for name, tensor in checkpoint.net_state.items()}
    names = sorted(shapes.keys() | loaded_shapes.keys())
    differing = [name for name in names if shapes.get(name) != loaded_shapes.get(name)]
    if differing:
        raise ConfigError(
            f"{subject}: is of another network than model = {config.job.model} "
            f"({len(differing)} tensors differ, first {differing[0]}); give the model it was written with"
        )
    return checkpoint


def load_parameters(config: RunConfig, net: nn.Module) -> None:
    """Give the network the parameters and buffers of `ckpt_path`, unless that is null."""
    checkpoint = load(config, net)
    if checkpoint is not None:
        net.load_state_dict(checkpoint.net_state)


def resume_path(config: RunConfig, net: nn.Module, optimizer: OptimizerFactory, world_size: int) -> str | None:
    """The path of the checkpoint that training resumes from, with steps left to train. None if `ckpt_path` is null.

    Raises ConfigError, and of these TrainingEndedError if nothing is left to train.
    """
    checkpoint = load(config, net)
    if checkpoint is None:
        return None
    subject = f"ckpt_path = {config.ckpt_path}"
    entries = list(RESUMED)
    if has_schedule(config.trainer):
        entries.append("lr_schedulers")
    lacking = [name for name in entries if not checkpoint.content.get(name)]
    if lacking:
        raise ConfigError(f"{subject}: has no {', '.join(lacking)}, which training goes on with; give another one")
    if not checkpoint.end_of_epoch:
        _check_inside_epoch(checkpoint, config, world_size, subject)
    settings = optimizer(net).defaults
    missing = sorted(settings.keys() - checkpoint.optimizer_settings.keys())
    if missing:
        raise ConfigError(
            f"{subject}: is of another optimizer than optimizer._target_ = {config.optimizer['_target_']} "
            f"(it has no {', '.join(missing)}); give the optimizer it was written with"
        )
    max_steps, max_epochs = config.trainer.max_steps, config.trainer.max_epochs
    if 0 < max_steps <= checkpoint.num_steps:
        raise TrainingEndedError(
            f"trainer.max_steps = {max_steps}: the checkpoint has finished {checkpoint.num_steps} steps; ask for more"
        )
    if checkpoint.num_epochs >= max_epochs:
        raise TrainingEndedError(
            f"trainer.max_epochs = {max_epochs}: the checkpoint has finished {checkpoint.num_epochs} epochs; "
            f"try trainer.max_epochs={checkpoint.num_epochs + max_epochs}"
        )
    return str(checkpoint.path)


def _check_inside_epoch(checkpoint: Checkpoint, config: RunConfig, world_size: int, subject: str) -> None:
    """Raise ConfigError if a checkpoint that was written inside of an epoch cannot go on with the next batch."""
    way_out = "give one that was written at an epoch's end"
    num_ranks = len(checkpoint.content.get("ranks", ()))
    if num_ranks != world_size:
        raise ConfigError(
            f"{subject}: was written inside of an epoch, with the state of {num_ranks} processes for {world_size}; "
            f"{way_out}"
        )
    progress = checkpoint.content["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
    if progress["processed"] % config.trainer.accumulate_grad_batches != 0:
        raise ConfigError(f"{subject}: was written inside of a step, without its gradients so far; {way_out}")


def _find(config: RunConfig, subject: str) -> Path:
    way_out = "give the path of a checkpoint, RUN_DIR/checkpoints/last.ckpt"
    if config.ckpt_path == "last":
        path = _find_last(config)
        if path is None:
            raise ConfigError(f"{subject}: no run of this model and data left one; {way_out}")
        return path
    path = Path(str(config.ckpt_path))
    if not path.is_file():
        raise ConfigError(f"{subject}: no such file; {way_out}")
    return path


def _find_last(config: RunConfig) -> Path | None:
    """The newest last.ckpt of this run directory, or else of a run of this model and data."""
    own = Path(config.job.run_dir, "checkpoints", "last.ckpt")
    if own.exists():
        return own
    paths = Path(config.job.runs_dir).rglob("checkpoints/last.ckpt")
    for path in sorted(paths, key=os.path.getmtime, reverse=True):
        row = read_row(path.parents[1])
        if row is not None and (row.model, row.data) == (config.job.model, config.job.data):
            return path
    return None
