"""The checkpoint that a run resumes from, shown to fit before any device is touched."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from trainkit.config.errors import ConfigError, refuse
from trainkit.config.schema import RunConfig
from trainkit.config.settings import dotted, typed_value
from trainkit.results.files import read_row
from trainkit.training.checkpoint_file import NET_PREFIX, read_checkpoint
from trainkit.training.criterion import Criterion
from trainkit.training.network import plain_config
from trainkit.training.objective import Objective
from trainkit.training.optimizer import OptimizerFactory, has_schedule

LOSS_PREFIX = "objective.loss."
# A checkpoint's entries beside the parameters, without which training does not go on as if it had never stopped
RESUMED = ("optimizer_states", "loops", "callbacks")
# Settings of an optimizer that choose its kernels: its steps differ by rounding alone
KERNELS = ("fused", "foreach", "capturable", "differentiable")
PLACES = ("path", "val_path", "cache_dir")  # settings of the data: the same samples may lie elsewhere


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
    def config(self) -> dict[str, Any]:
        """The config of the run that wrote it, as plain values; empty in checkpoints of older versions."""
        return dict(self.content.get("config") or {})

    @property
    def parameter_groups(self) -> list[dict[str, Any]]:
        """Those of the optimizer, with its settings."""
        return list(self.content["optimizer_states"][0]["param_groups"])


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


def resume_path(
    config: RunConfig, net: nn.Module, criterion: Criterion, optimizer: OptimizerFactory, world_size: int
) -> str | None:
    """The path of the checkpoint that training resumes from, with steps left to train. None if `ckpt_path` is null.

    Raises ConfigError for a checkpoint that training would not go on from with the requested optimizer or, inside of an
    epoch, with the requested batches. Raises TrainingEndedError, which is one, if nothing is left to train.
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
    _check_optimizer(checkpoint, config, optimizer(Objective(net, criterion=criterion)), subject)
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
    refuse(_order_complaints(checkpoint.config, plain_config(config)))


def _order_complaints(saved_config: dict[str, Any], config: dict[str, Any]) -> Iterator[str]:
    """A complaint for each setting with which the rest of an epoch would have other batches than it had before."""
    if not saved_config:
        return
    saved, requested = _order_settings(saved_config), _order_settings(config)
    for name in sorted(saved.keys() | requested.keys()):
        saved_value, value = saved.get(name), requested.get(name)
        is_moved = name.endswith(PLACES) and None not in (saved_value, value)
        follows_seed = name == "data.seed" and saved["seed"] != requested["seed"]
        if value == saved_value or is_moved or follows_seed:
            continue
        yield (
            f"{name} = {typed_value(value)}: the checkpoint was written inside of an epoch with "
            f"{typed_value(saved_value)}, and the rest would have other batches; request that, or give one that was "
            "written at an epoch's end"
        )


def _order_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide which samples are in the batches of an epoch, by dotted name."""
    limit = config["trainer"]["limit_train_batches"]
    settings = {"seed": config["seed"], "trainer.limit_train_batches": limit}
    for name, value in dotted(config["data"]).items():
        if not name.endswith("num_workers"):
            settings[f"data.{name}"] = value
    return settings


def _check_optimizer(checkpoint: Checkpoint, config: RunConfig, optimizer: Optimizer, subject: str) -> None:
    """Raise ConfigError if training would go on with another optimizer, or other settings of it, than requested: torch
    takes them from the checkpoint."""
    requested, saved = plain_config(config)["optimizer"], checkpoint.config.get("optimizer", {})
    groups = checkpoint.parameter_groups
    written_with = "give the optimizer it was written with"
    is_same_class = requested["_target_"] == saved.get("_target_")
    missing = sorted(optimizer.defaults.keys() - groups[0].keys())
    if missing and not is_same_class:  # of the same class, another version of torch has added them
        raise ConfigError(
            f"{subject}: is of another optimizer than optimizer._target_ = {requested['_target_']} "
            f"(it has no {', '.join(missing)}); {written_with}"
        )
    if len(groups) != len(optimizer.param_groups):
        raise ConfigError(
            f"{subject}: has {len(groups)} parameter groups, and optimizer.groups gives {len(optimizer.param_groups)}; "
            f"{written_with}"
        )
    # Of the same request, a callback has changed what differs.
    if _without_kernels(requested) != _without_kernels(saved):
        refuse(_optimizer_complaints(groups, optimizer.param_groups))


def _optimizer_complaints(saved_groups: list[dict[str, Any]], groups: list[dict[str, Any]]) -> Iterator[str]:
    """A complaint for each setting that a parameter group has with another value in the checkpoint."""
    differing: set[str] = set()
    for number, (saved_group, group) in enumerate(zip(saved_groups, groups, strict=True), start=1):
        settings = _without_kernels(group)
        for name in sorted(settings.keys() & saved_group.keys() - differing):
            value, saved_value = settings[name], saved_group[name]
            if name == "lr":  # which a schedule has changed, from this one
                saved_value = saved_group.get("initial_lr", saved_value)
            if _plain(value) == _plain(saved_value):
                continue
            differing.add(name)
            where = f" (parameter group {number})" if len(groups) > 1 else ""
            yield (
                f"optimizer.{name} = {typed_value(value)}{where}: the checkpoint has {typed_value(saved_value)}, which "
                "training would go on with; request that, or begin a new run without ckpt_path"
            )


def _without_kernels(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of an optimizer, or of a parameter group of it, that change more of its steps than rounding."""
    return {name: value for name, value in settings.items() if name not in ("params", "param_names", *KERNELS)}


def _plain(value: Any) -> Any:
    """A setting as it compares: configs have lists for tuples, and an optimizer may keep numbers in tensors."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


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
