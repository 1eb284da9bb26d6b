"""The network of a checkpoint, by the config in it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainkit.config.errors import ConfigError
from trainkit.config.schema import NOT_ARGUMENTS, RunConfig
from trainkit.training.checkpoint_file import NET_PREFIX, read_checkpoint
from trainkit.training.instantiate import instantiate_node


def load(path: Path | str) -> nn.Module:
    """The plain network of a checkpoint, with its parameters, on the CPU and in evaluation mode.

    It is neither compiled nor wrapped. Raises ConfigError for a file that is no checkpoint, is damaged, or has no
    config, as those of older versions.
    """
    content = read_checkpoint(Path(path), f"checkpoint {path}")
    config: dict[str, Any] | None = content.get("config")
    if config is None:
        raise ConfigError(f"checkpoint {path}: has no config; build the network and load its state_dict yourself")
    arguments = {name: value for name, value in config["model"].items() if name not in NOT_ARGUMENTS}
    net: nn.Module = instantiate_node("model", config["job"]["model"], arguments)
    state: dict[str, torch.Tensor] = {}
    for name, tensor in content["state_dict"].items():
        if name.startswith(NET_PREFIX):
            state[name.removeprefix(NET_PREFIX)] = tensor
    net.load_state_dict(state)
    return net.eval()


def plain_config(config: RunConfig) -> dict[str, Any]:
    """A config as plain values, which torch loads without running code."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return plain
