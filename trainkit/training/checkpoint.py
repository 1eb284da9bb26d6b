"""Where a run goes on from: the checkpoint of `ckpt_path`, shown to fit before any device is touched."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from trainkit.compiler.errors import first_line
from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.results.files import read_row

OF_NET = "objective.net."  # what a checkpoint's names of the network's tensors begin with


def load(config: RunConfig, net: nn.Module) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint of `ckpt_path` and where it lies, shown to be whole and of this network; None where none was
    asked for.

    `last` is the last checkpoint of the run directory itself, or else of the newest run of this model and data.
    """
    if config.ckpt_path is None:
        return None
    path = last(config) if config.ckpt_path == "last" else Path(config.ckpt_path)
    subject = f"ckpt_path = {config.ckpt_path}"
    if path is None or not path.is_file():
        found = "no run of this model and data left one" if path is None else "no such file"
        raise ConfigError(f"{subject}: {found}; give the path of a checkpoint, RUN_DIR/checkpoints/last.ckpt")
    try:
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        state = loaded["state_dict"]
        _ = loaded["global_step"], loaded["epoch"] + 1, loaded["optimizer_states"][0]["param_groups"][0]
    except Exception as error:  # a file that is not a checkpoint makes torch.load raise nearly anything
        raise ConfigError(f"{subject}: not a checkpoint of a run: {first_line(error)}; give another one") from error
    shapes = {f"{OF_NET}{name}": tensor.shape for name, tensor in net.state_dict().items()}
    differing = sorted(
        name for name in shapes.keys() | state.keys() if name not in state or shapes.get(name) != state[name].shape
    )
    if differing:
        raise ConfigError(
            f"{subject}: is of another network than model = {config.job.model} "
            f"({len(differing)} tensors differ, first {differing[0]}); give the model it was written with"
        )
    return path, loaded


def load_parameters(config: RunConfig, net: nn.Module) -> None:
    """Give the network the parameters and buffers of `ckpt_path`, where one is asked for."""
    if (found := load(config, net)) is not None:
        net.load_state_dict({name.removeprefix(OF_NET): value for name, value in found[1]["state_dict"].items()})


def resume_path(config: RunConfig, net: nn.Module, optimizer: Callable[..., Optimizer]) -> str | None:
    """Where the checkpoint lies that training goes on from, shown to have something left to do; None where none was
    asked for."""
    if (found := load(config, net)) is None:
        return None
    path, loaded = found
    subject = f"ckpt_path = {config.ckpt_path}"
    steps, finished = loaded["global_step"], loaded["epoch"] + 1
    slots = set(loaded["optimizer_states"][0]["param_groups"][0])
    if not loaded.get("end_of_epoch"):
        raise ConfigError(f"{subject}: was written inside of an epoch; give one that was written at an epoch's end")
    if missing := sorted(set(optimizer([nn.Parameter(torch.zeros(1))]).defaults) - slots):
        raise ConfigError(
            f"{subject}: is of another optimizer than optimizer._target_ = {config.optimizer['_target_']} "
            f"(it has no {', '.join(missing)}); give the optimizer it was written with"
        )
    if 0 < config.trainer.max_steps <= steps:
        raise ConfigError(
            f"trainer.max_steps = {config.trainer.max_steps}: the checkpoint has finished {steps} steps; ask for more"
        )
    if finished >= config.trainer.max_epochs:
        raise ConfigError(
            f"trainer.max_epochs = {config.trainer.max_epochs}: the checkpoint has finished {finished} epochs; "
            f"try trainer.max_epochs={finished + config.trainer.max_epochs}"
        )
    return str(path)


def last(config: RunConfig) -> Path | None:
    """The newest last.ckpt of this run directory, or else of a run of this model and data; None where there is none."""
    own = Path(config.job.run_dir, "checkpoints", "last.ckpt")
    if own.exists():
        return own
    for path in sorted(Path(config.job.runs_dir).glob("*/*/checkpoints/last.ckpt"), key=os.path.getmtime, reverse=True):
        row = read_row(path.parents[1])
        if row is not None and (row.model, row.data) == (config.job.model, config.job.data):
            return path
    return None
