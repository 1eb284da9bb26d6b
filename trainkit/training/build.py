"""From a config to the objects of a run, each shown to fit the others before any device is touched."""

import copy
import inspect
import os
import textwrap
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from lightning import Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.profilers import Profiler
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import Optimizer

from trainkit.compiler import apply
from trainkit.compiler.errors import first_line
from trainkit.config.errors import TYPE_NAMES, ConfigError
from trainkit.config.schema import NOT_ARGUMENTS, RunConfig, TrainerConfig
from trainkit.data.module import DataModule
from trainkit.distributed.strategies import strategy
from trainkit.training.loss import logits_of


@dataclass(frozen=True)
class Devices:
    """What a run trains on: `cuda` or `cpu`, so many devices of each node, so many nodes."""

    type: str
    per_node: int
    num_nodes: int

    @property
    def world_size(self) -> int:
        return self.per_node * self.num_nodes


def topology(trainer: TrainerConfig) -> tuple[int, int]:
    """(devices of each node, nodes): as torchrun launched them, else as asked, else one of each.

    Raises ConfigError where torchrun launched something else than was asked for.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return trainer.devices or 1, trainer.num_nodes or 1
    local, world = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    if trainer.devices not in (None, local):
        raise ConfigError(
            f"trainer.devices = {trainer.devices}: torchrun launched {local} processes on this node; "
            f"use torchrun --nproc-per-node={trainer.devices}, or leave trainer.devices out"
        )
    if trainer.num_nodes not in (None, world // local):
        raise ConfigError(
            f"trainer.num_nodes = {trainer.num_nodes}: torchrun launched {world // local} nodes; "
            f"use torchrun --nnodes={trainer.num_nodes}, or leave trainer.num_nodes out"
        )
    return local, world // local


def devices(config: RunConfig) -> Devices:
    """What to train on. Raises ConfigError where what was asked for is not there, or torchrun launched otherwise."""
    asked_for, found = config.trainer.accelerator.value, torch.cuda.device_count()
    per_node, num_nodes = topology(config.trainer)
    if asked_for == "cpu" or (asked_for == "auto" and found == 0):
        if config.amp.precision.value == "16-mixed":
            raise ConfigError("amp.precision = 16-mixed: fp16 needs a GPU, none was found; use amp=bf16 or amp=off")
        if (limit := config.trainer.memory_limit_gib) is not None:
            raise ConfigError(f"trainer.memory_limit_gib = {limit}: limits a GPU's memory; on a CPU leave it out")
        return Devices("cpu", per_node, num_nodes)
    if found == 0:
        raise ConfigError("trainer.accelerator = gpu: no CUDA device was found; use trainer.accelerator=cpu")
    if per_node > found:
        way_out = "ask for fewer, or use trainer.accelerator=cpu"
        raise ConfigError(f"trainer.devices = {per_node}: this machine has {found} CUDA devices; {way_out}")
    return Devices("cuda", per_node, num_nodes)


def data(config: RunConfig) -> DataModule:
    """The data of `data._target_`, of whose sizes each will come."""
    data: DataModule = instance("data", config.job.data, config.data)
    trainer = config.trainer
    limits: dict[str, int | float | None] = {"forward.num_calls": config.forward.num_calls}
    if config.job.kind.value == "train":
        steps = max(trainer.max_steps, 0) * trainer.accumulate_grad_batches
        limits = {"trainer.max_steps": steps, "trainer.limit_train_batches": trainer.limit_train_batches}
    for name, limit in limits.items():
        if limit and (complaints := data.never_coming(limit)):
            raise ConfigError(*(f"{complaint}; raise {name}, or lower data.num_batches" for complaint in complaints))
    return data


def net(config: RunConfig, data: DataModule, devices: Devices) -> nn.Module:
    """The network of `model._target_`, shown to fit the data by one forward pass of a copy, in eval mode on the CPU,
    and what `compile.*` asks for."""
    name, taken = config.job.model, {key: value for key, value in config.model.items() if key not in NOT_ARGUMENTS}
    network: nn.Module = instance("model", name, taken)
    inputs, targets = sample = data.sample()
    subject = f"model = {name}: does not fit data = {config.job.data}"
    if not isinstance(network, nn.Module):
        raise ConfigError(f"model._target_ = {taken['_target_']}: gives a {type(network).__name__}; give an nn.Module")
    try:
        copied = copy.deepcopy(network)
    except Exception as error:  # of any kind: what its attributes raise
        raise ConfigError(
            f"model = {name}: cannot be copied: {first_line(error)}; keep locks, open files and iterators out of its "
            "attributes"
        ) from error
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = logits_of(copied.eval()(copy.deepcopy(data.prepare).eval()(inputs)))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        raise ConfigError(
            f"{subject}: {first_line(error)} (at {where}, tried on the CPU); choose others or change their sizes"
        ) from error
    if not isinstance(logits, torch.Tensor):
        raise ConfigError(f"{subject}: returns a {type(logits).__name__}; wrap it so that it returns the logits alone")
    if tuple(logits.shape[:-1]) != tuple(targets.shape):
        raise ConfigError(
            f"{subject}: gives logits {tuple(logits.shape)} for targets {tuple(targets.shape)}; "
            "expected the targets' shape and one dimension of classes"
        )
    if (classes := data.sizes.get("num_classes")) is not None and logits.shape[-1] < classes:
        raise ConfigError(f"{subject}: gives {logits.shape[-1]} logits for {classes} classes; give it as many")
    apply.check(config.compile, network, sample, devices.type, data.coming_sizes())
    return network


def instance(group: str, name: str, node: dict[str, Any]) -> Any:
    """The object of a `_target_` node. Raises ConfigError where the class or its arguments are not as it says."""
    try:
        target = get_object(node["_target_"])
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{group}._target_ = {node['_target_']}: {first_line(error)}; give an installed class"
        ) from error
    if complaints := _mistyped(group, target, node):
        raise ConfigError(*complaints)
    try:
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        if isinstance(cause := error.__cause__, ConfigError):
            raise cause from None
        signature = ", ".join(inspect.signature(target).parameters)
        said = textwrap.shorten(first_line(cause or error), 300, placeholder=" ...")  # transformers lists all it has
        raise ConfigError(f"{group} = {name}: {said}; {target.__name__} takes ({signature})") from error


def _mistyped(group: str, target: Callable[..., Any], node: dict[str, Any]) -> list[str]:
    """A complaint for each setting that is to be a number, or true or false, by the target's signature, and is not."""
    complaints = []
    known = _parameters(target)
    for name, parameter in ((name, known[name]) for name in known if name in node):
        said, default, value = parameter.annotation, parameter.default, node[name]
        kinds = {*get_args(said)} if get_origin(said) in (Union, UnionType) else {said}
        kind, *more = kinds - {NoneType} or {NoneType}
        null = value is None and (NoneType in kinds or default is None)
        if kind not in TYPE_NAMES or more or isinstance(value, dict) or null:
            continue
        if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool) != (kind is bool):
            way_out = "" if default in (None, parameter.empty) else f"; try {group}.{name}={str(default).lower()}"
            complaints.append(
                f"{group}.{name} = {'null' if value is None else value}: expected {TYPE_NAMES[kind]}{way_out}"
            )
    return complaints


def _parameters(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Those of a function, or of a class and of those it inherits from, which may get what it does not name itself."""
    classes = reversed(inspect.getmro(target)) if inspect.isclass(target) else ()
    parameters: dict[str, inspect.Parameter] = {}
    for call in [vars(cls)["__init__"] for cls in classes if "__init__" in vars(cls)] or [target]:
        try:
            parameters |= inspect.signature(call, eval_str=True).parameters
        except (NameError, ValueError):  # names that only a type checker imports; a function written in C
            continue
    return parameters


def optimizer(config: RunConfig) -> Callable[..., Optimizer]:
    """The optimizer of `optimizer._target_`, still without parameters, in the implementation that `optimizer.fused` and
    `optimizer.foreach` ask for: neither (null) is the fused one where the class has it."""
    node = dict(config.optimizer)
    try:
        target = get_object(node["_target_"])
        known = inspect.signature(target).parameters
    except (ImportError, ValueError) as error:
        raise ConfigError(f"optimizer._target_ = {node['_target_']}: {first_line(error)}; give a class") from error
    if complaints := _mistyped("optimizer", target, node):
        raise ConfigError(*complaints)
    fused, foreach = (node.pop(name, None) for name in ("fused", "foreach"))
    for name, value in (("fused", fused), ("foreach", foreach)):
        if value is not None and name not in known:
            raise ConfigError(f"optimizer.{name} = {value}: {target.__name__} has no such setting; leave it out")
    # torch's fused SGD takes its momentum from memory that it never wrote where the scaler skips the first step.
    # No issue of torch's is known; https://github.com/LibreYOLO/libreyolo/pull/771 met it. A test tells.
    loses_momentum = (
        config.amp.precision.value == "16-mixed" and target is torch.optim.SGD and bool(node.get("momentum"))
    )
    if fused and loses_momentum:
        raise ConfigError(
            "optimizer.fused = True: torch's fused SGD loses its momentum where fp16 skips the first step; "
            "use optimizer.foreach=true, amp=bf16 or optimizer=adamw"
        )
    if fused is None and foreach is None and "fused" in known:
        fused = not loses_momentum
    # Without either torch chooses between foreach and a loop; fused=False would make it the loop.
    node |= {name: value for name, value in (("fused", fused or None), ("foreach", foreach)) if value is not None}
    factory: Callable[..., Optimizer] = instantiate(node, _partial_=True, _convert_="all")
    try:
        built = factory([nn.Parameter(torch.zeros(1))])
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"optimizer._target_ = {node['_target_']}: {first_line(error)}; correct optimizer.*"
        ) from error
    if not isinstance(built, Optimizer):
        raise ConfigError(
            f"optimizer._target_ = {node['_target_']}: is no torch.optim.Optimizer; choose optimizer=adamw"
        )
    return factory


def attention(config: RunConfig, devices: Devices) -> AbstractContextManager[None]:
    """Within it scaled_dot_product_attention runs the kernel asked for, and fails where that one cannot."""
    asked_for = config.trainer.attention.value
    if asked_for == "auto":
        return nullcontext()
    if asked_for in ("cudnn", "efficient") and devices.type == "cpu":
        raise ConfigError(f"trainer.attention = {asked_for}: needs a GPU; on a CPU use auto, flash or math")
    return sdpa_kernel(getattr(SDPBackend, "MATH" if asked_for == "math" else f"{asked_for.upper()}_ATTENTION"))


def trainer(config: RunConfig, devices: Devices, callbacks: list[Callback], profiler: Profiler) -> Trainer:
    """Lightning's Trainer as asked; it keeps the last and the best checkpoint."""
    asked, run_dir = config.trainer, config.job.run_dir
    validates = asked.limit_val_batches != 0 and config.data.get("num_val_batches") != 0
    checkpoints = ModelCheckpoint(
        dirpath=Path(run_dir, "checkpoints"),
        filename="best",
        monitor="val/loss" if validates else None,
        save_last=True,
        enable_version_counter=False,
    )
    return Trainer(
        max_epochs=asked.max_epochs,
        limit_val_batches=asked.limit_val_batches,
        callbacks=[*callbacks, checkpoints],
        profiler=profiler,
        logger=logger(config) or False,
        **_training(config, devices),
    )


def profiling_trainer(config: RunConfig, devices: Devices, profiler: Profiler) -> Trainer:
    """A Trainer of the same kind for one more epoch, of which nothing is kept but what the profiler is told."""
    return Trainer(
        max_epochs=1,
        limit_val_batches=0,
        enable_checkpointing=False,
        profiler=profiler,
        logger=False,
        **_training(config, devices),
    )


def _training(config: RunConfig, devices: Devices) -> dict[str, Any]:
    """What every Trainer of a run has in common."""
    asked = config.trainer
    return {
        "accelerator": "gpu" if devices.type == "cuda" else "cpu",
        "devices": devices.per_node,
        "num_nodes": devices.num_nodes,
        "strategy": strategy(config, devices.world_size),
        "precision": config.amp.precision.value,  # one of Lightning's words
        "limit_train_batches": asked.limit_train_batches,
        "accumulate_grad_batches": asked.accumulate_grad_batches,
        "gradient_clip_val": asked.gradient_clip_val,
        "default_root_dir": config.job.run_dir,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }


def logger(config: RunConfig) -> Logger | None:
    """The logger of `logger._target_`; None where there is none."""
    if not config.logger.get("_target_"):
        return None
    built: Logger = instance("logger", "", config.logger)
    if isinstance(built, WandbLogger):
        # Lightning 2.6 hands W&B an argument that W&B has dropped and warns about, whatever it says.
        built._wandb_init.pop("anonymous", None)
        if not config.logger.get("offline"):
            reach_server(built)
    return built


def reach_server(logger: WandbLogger) -> None:
    """Start the online W&B run now, on rank 0: without a key or a network nothing should be trained first."""
    try:
        _ = logger.experiment
    except Exception as error:  # W&B's own classes, which only publish.py may import
        raise ConfigError(f"logger = wandb_online: {first_line(error)}; `wandb login`, or logger=wandb") from error
