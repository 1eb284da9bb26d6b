"""The data and the network of a run, shown to fit each other before any device is touched."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import torch
from torch import nn

from trainkit.compiler import apply
from trainkit.compiler.errors import first_line, located_line
from trainkit.compiler.startup import num_cores
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.schema import NOT_ARGUMENTS, RunConfig
from trainkit.config.settings import FINITE, WHOLE, at_least
from trainkit.data.module import DataModule
from trainkit.distributed.topology import Devices
from trainkit.formatting import size
from trainkit.inputs import Inputs, call
from trainkit.metrics.memory import machine_bytes
from trainkit.training.criterion import Criterion, check_criterion, trained_logits
from trainkit.training.instantiate import instantiate_node

OWN_NETWORKS = "trainkit.models."


def build_data(config: RunConfig) -> DataModule:
    """The data of `data._target_`. Raises ConfigError if one of its declared batch sizes would never come."""
    data: DataModule = instantiate_node("data", config.job.data, _with_factories(config.data))
    for setting, limit in _batch_limits(config).items():
        if not limit:
            continue
        way_out = f"raise {setting}, or lower data.num_batches"
        refuse(f"{complaint}; {way_out}" for complaint in data.unused_sizes(limit))
    refuse(_memory_complaints(data))
    return data


def _memory_complaints(data: DataModule) -> list[str]:
    """A complaint if the inputs of one batch, in numbers of 4 bytes, are larger than the machine's memory."""
    largest = [max(sizes, default=0) for sizes in data.possible_sizes().values()]
    batch_bytes, total_bytes = 4 * prod(largest), machine_bytes()
    if not largest or total_bytes is None or batch_bytes <= total_bytes:
        return []
    sizes = " x ".join(map(str, largest))
    return [
        f"data.batch_size = {data.batch_size}: a batch of {sizes} takes {size(batch_bytes)}, and this machine has "
        f"{size(total_bytes)}; make it or its samples smaller"
    ]


def _size_complaints(config: RunConfig) -> list[str]:
    """A complaint for each argument of a network of trainkit's own that is no size: below 1, or a fraction that is not
    finite. What the arguments of a user's network mean is the user's."""
    arguments = config.model
    if not str(arguments["_target_"]).startswith(OWN_NETWORKS):
        return []
    complaints = []
    for name, value in arguments.items():
        if isinstance(value, int) and not isinstance(value, bool):
            if not at_least(1).holds(value):
                complaints.append(at_least(1).complaint(f"model.{name}", value))
            elif not WHOLE.holds(value):
                complaints.append(WHOLE.complaint(f"model.{name}", value))
        elif isinstance(value, float) and not FINITE.holds(value):
            complaints.append(FINITE.complaint(f"model.{name}", value))
    return complaints


def _with_factories(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of data that makes the objects of its nodes: each node as a function, None if it names no class."""
    if settings.get("_recursive_", True):
        return settings
    with_factories = dict(settings)
    for name, node in settings.items():
        if isinstance(node, dict) and "_target_" in node:
            target, make = node["_target_"], None
            if target is not None:
                make = partial(instantiate_node, f"data.{name}", target, node)
            with_factories[name] = make
    return with_factories


def _batch_limits(config: RunConfig) -> dict[str, int | float | None]:
    """The settings that limit the number of batches. 0 and None are no limit."""
    if config.job.kind == "forward":
        return {"forward.num_calls": config.forward.num_calls}
    trainer = config.trainer
    return {
        "trainer.max_steps": max(trainer.max_steps, 0) * trainer.accumulate_grad_batches,
        "trainer.limit_train_batches": trainer.limit_train_batches,
    }


def build_model(config: RunConfig, data: DataModule, devices: Devices, criterion: Criterion | None = None) -> nn.Module:
    """The network of `model._target_`, which fits the data and can be compiled as requested.

    One forward pass of a copy, in eval mode on the CPU, shows that it fits. A network that is only called may return
    anything, one that is trained gets a `criterion` that takes it. Raises ConfigError if it does not fit.
    """
    refuse(_size_complaints(config))
    arguments = {name: value for name, value in config.model.items() if name not in NOT_ARGUMENTS}
    net = instantiate_node("model", config.job.model, arguments)
    inputs, targets = sample = data.sample()
    if not isinstance(net, nn.Module):
        problem = f"gives a {type(net).__name__}; give an nn.Module"
        raise ConfigError(f"model._target_ = {arguments['_target_']}: {problem}")
    with share_of_cores(devices.per_node):
        outputs = _try_forward(config, net, data, inputs)
    if criterion is not None:
        if criterion.takes_logits:
            outputs = trained_logits(outputs)
        check_criterion(config, criterion, outputs, targets, data.sizes)
    apply.check_network(config.compile, net, sample, devices.type, data.possible_sizes())
    return net


@contextmanager
def share_of_cores(num_ranks: int) -> Iterator[None]:
    """Let torch compute on this rank's share of the machine's cores: torchrun leaves each rank one thread, with which a
    large network's forward takes seconds."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(max(num_threads, num_cores() // num_ranks))
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _try_forward(config: RunConfig, net: nn.Module, data: DataModule, inputs: Inputs) -> Any:
    """The outputs of a copy of the network. Random states stay as they are."""
    try:
        copied = copy.deepcopy(net)
    except Exception as error:  # of any kind: what its attributes raise
        raise ConfigError(
            f"model = {config.job.model}: cannot be copied: {first_line(error)}; keep locks, open files and iterators "
            "out of its attributes"
        ) from error
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            prepared = copy.deepcopy(data.prepare).eval()(inputs)
            return call(copied.eval(), prepared)
    except Exception as error:  # of any kind: the network is the user's
        problem = f"{located_line(error)}, tried on the CPU"
        raise ConfigError(f"{_misfit(config)}: {problem}; choose others or change their sizes") from error


def _misfit(config: RunConfig) -> str:
    return f"model = {config.job.model}: does not fit data = {config.job.data}"
