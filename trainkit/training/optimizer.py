"""The optimizer of a run: its implementation, its schedule, clipping, skipped steps and the state of a checkpoint."""

import inspect
from collections.abc import Callable, Iterator
from itertools import chain
from math import cos, pi
from typing import Any

import torch
from hydra.utils import instantiate
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.distributed.tensor import DTensor
from torch.optim import (
    ASGD,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,  # is an Adam
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    Rprop,
)

from trainkit.compiler.errors import first_line, located_line
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.schema import GROUPS, DdpConfig, RunConfig, TrainerConfig
from trainkit.training.instantiate import find_target, instantiate_node, type_complaints
from trainkit.training.muon import MuonAndAdamW

ELEMENTWISE = (Adam, AdamW, Adamax, NAdam, RAdam, SGD, ASGD, RMSprop, Rprop, Adagrad, Adadelta)
OptimizerFactory = Callable[[nn.Module], Optimizer]  # the network and the loss -> optimizer of their parameters


def build_optimizer(config: RunConfig) -> OptimizerFactory:
    """The optimizer of `optimizer._target_` and its parameter groups, still without parameters.

    If neither `optimizer.fused` nor `optimizer.foreach` is set, it is the fused implementation if the class has one and
    the parameters are real numbers. Raises ConfigError, as the factory does.
    """
    settings = dict(config.optimizer)
    target = find_target("optimizer", settings)
    arguments = inspect.signature(target).parameters
    group_parameters = _grouping(settings.pop(GROUPS, None))
    refuse(type_complaints("optimizer", target, settings))
    fused, foreach = settings.pop("fused", None), settings.pop("foreach", None)
    for name, value in (("fused", fused), ("foreach", foreach)):
        if value is not None and name not in arguments:
            raise ConfigError(f"optimizer.{name} = {value}: {target.__name__} has no such setting; leave it out")
    refuse(_strategy_complaints(config.ddp, target))
    loses_momentum = _fused_loses_momentum(config, target)
    if fused and loses_momentum:
        raise ConfigError(
            "optimizer.fused = True: torch's fused SGD loses its momentum where fp16 skips the first step; "
            "use optimizer.foreach=true, amp=bf16 or optimizer=adamw"
        )
    may_fuse = fused is None and foreach is None and "fused" in arguments and not loses_momentum
    if fused:  # without either argument torch chooses between foreach and a loop; fused=False would be the loop
        settings["fused"] = fused
    if foreach is not None:
        settings["foreach"] = foreach
    make = instantiate(settings, _partial_=True, _convert_="all")

    def factory(network: nn.Module) -> Optimizer:
        is_real = not any(parameter.is_complex() for parameter in network.parameters())
        if fused and not is_real:
            raise ConfigError("optimizer.fused = True: torch's kernels take no complex parameters; leave it out")
        implementation = {"fused": True} if may_fuse and is_real else {}
        parameters = group_parameters(network)
        try:
            optimizer: Optimizer = make(parameters, **implementation)
        except (TypeError, ValueError) as error:
            subject = f"optimizer._target_ = {config.optimizer['_target_']}"
            raise ConfigError(f"{subject}: {first_line(error)}; correct optimizer.*") from error
        return optimizer

    _check_class(make, f"optimizer._target_ = {config.optimizer['_target_']}")
    return factory


def _strategy_complaints(ddp: DdpConfig, target: Any) -> Iterator[str]:
    """A complaint if an optimizer of this class cannot take what the strategy leaves to a rank."""
    if target is MuonAndAdamW and ddp.strategy == "fsdp2":
        yield "ddp.strategy = fsdp2: has shards of matrices, and Muon needs whole ones; use optimizer=adamw"
    if ddp.shard_optimizer and target not in ELEMENTWISE:
        name = target.__name__
        yield (
            f"ddp.shard_optimizer = true: divides parameters anywhere, and {name} may need whole ones; "
            "use optimizer=adamw"
        )


def _grouping(node: dict[str, Any] | None) -> Callable[[nn.Module], Any]:
    """The function of `optimizer.groups`: network -> its parameters, in groups."""
    if node is None or node.get("_target_") is None:
        return nn.Module.parameters
    function = instantiate_node("optimizer.groups", node["_target_"], node | {"_partial_": True})
    subject = f"optimizer.groups._target_ = {node['_target_']}"

    def grouped(network: nn.Module) -> list[dict[str, Any]]:
        try:
            groups = [group | {"params": list(group["params"])} for group in function(network)]
        except Exception as error:  # of any kind: the function is the user's
            raise ConfigError(f"{subject}: {located_line(error)}; it takes the network and gives groups") from error
        missing = set(network.parameters()).difference(*(group["params"] for group in groups))
        if missing:
            raise ConfigError(f"{subject}: leaves out {len(missing)} parameters; put each into a group")
        return [group for group in groups if group["params"]]

    return grouped


def _fused_loses_momentum(config: RunConfig, target: Any) -> bool:
    """Whether the fused implementation may read momentum from memory that was never written.

    torch's fused SGD does, if the GradScaler skips the first step. torch has no issue for it yet;
    https://github.com/LibreYOLO/libreyolo/pull/771 describes it. tests/test_workarounds.py fails when it is fixed.
    """
    has_momentum = bool(config.optimizer.get("momentum"))
    return config.amp.precision == "16-mixed" and target is SGD and has_momentum


def _check_class(make: Callable[..., Any], subject: str) -> None:
    try:
        optimizer = make([nn.Parameter(torch.zeros(1, 1))])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{subject}: {first_line(error)}; correct optimizer.*") from error
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(f"{subject}: is no torch.optim.Optimizer; choose optimizer=adamw")
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(f"{subject}: computes the loss several times in a step; choose optimizer=adamw")


def has_schedule(settings: TrainerConfig) -> bool:
    """Whether the learning rate changes during training."""
    return settings.schedule != "constant" or settings.warmup_steps > 0


def schedule_factor(schedule: str, warmup_steps: int, total_steps: int) -> Callable[[int], float]:
    """The learning rate's factor by optimizer step: linear warm-up, then constant, or a half cosine to 0."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        if schedule == "constant":
            return 1.0
        progress = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
        return (1 + cos(pi * min(progress, 1.0))) / 2

    return factor


def clips_in_kernel(optimizer: Optimizer) -> bool:
    """Whether `clip_in_kernel` can clip the gradients of this optimizer."""
    return isinstance(optimizer, Adam | SGD) and bool(optimizer.defaults["fused"]) and not is_sharded(optimizer)


def is_sharded(optimizer: Optimizer) -> bool:
    """Whether the optimizer has shards of parameters."""
    return any(isinstance(parameter, DTensor) for parameter in optimized_parameters(optimizer))


def gradient_norm(optimizer: Optimizer, scaler: GradScaler | None) -> Tensor:
    """The norm of all gradients before the optimizer's step, on the device. A fused optimizer's are scaled until then.

    Shards of gradients are gathered: all ranks call it.
    """
    gradients = [parameter.grad for parameter in optimized_parameters(optimizer) if parameter.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
        norm = norm / scaler.scale(torch.ones_like(norm))
    return norm


def clip_in_kernel(optimizer: Optimizer, max_norm: float, norm: Tensor) -> None:
    """Limit the norm of all gradients, which is `norm` now, in the optimizer's next step.

    The kernel of a fused optimizer divides the gradients by `grad_scale` as it reads them, which saves one pass over
    them. With a GradScaler the gradients are still scaled, and it multiplies `grad_scale` by its own scale.
    """
    optimizer.grad_scale = ((norm + 1e-6) / max_norm).clamp(min=1.0)  # type: ignore[attr-defined]


class SkippedSteps:
    """Counts the steps that a GradScaler skips because a gradient is not finite; it lowers its scale after each.

    The count is exact, and kept on the device: only `count()` waits for it. All ranks have the same gradients and so
    the same count.
    """

    def __init__(self, scaler: GradScaler, device: torch.device):
        self._scaler = scaler
        self._unit = torch.ones((), device=device)
        self._scale = scaler.scale(self._unit)
        self._count = torch.zeros((), dtype=torch.int64, device=device)

    def after_batch(self) -> None:
        """Compare the scale with that of the last call. At most one `scaler.update()` may lie between two calls."""
        scale = self._scaler.scale(self._unit)  # get_scale() would wait for the device
        self._count += scale < self._scale
        self._scale = scale

    def count(self) -> int:
        return int(self._count)

    def restore(self, count: int) -> None:
        self._count.fill_(count)


def adapt_checkpoint_state(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The optimizer's state of a checkpoint, with the implementation requested now and the layout of the parameters.

    torch would take both from the checkpoint, and fused kernels need one layout. A hook of
    Optimizer.register_load_state_dict_pre_hook.
    """
    requested = {}
    for name in ("fused", "foreach"):
        if name in optimizer.defaults:
            requested[name] = optimizer.defaults[name]
    keys = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
    parameters = dict(zip(keys, optimized_parameters(optimizer), strict=False))  # torch complains of another number
    adapted_states = {}
    for key, state in state_dict["state"].items():
        adapted_states[key] = {name: _laid_out_as(parameters[key], value) for name, value in state.items()}
    return {"param_groups": [group | requested for group in state_dict["param_groups"]], "state": adapted_states}


def _laid_out_as(parameter: Tensor, value: Any) -> Any:
    """A copy of a tensor with the parameter's shape, in the parameter's memory layout; any other value itself."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def optimized_parameters(optimizer: Optimizer) -> list[Tensor]:
    parameters: list[Tensor] = []
    for group in optimizer.param_groups:
        parameters.extend(group["params"])
    return parameters
