"""The subject of a diagnosis (a network and batches of its data), and trials: copies of it that make steps.

All trials run in the calling process. It should be a process of its own, because they drop all compiled code and all
counters of the process. The user's network stays as it is.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from lightning import seed_everything
from torch import nn
from torch.optim import Optimizer
from torch.profiler import record_function

from trainkit.compiler import dynamo
from trainkit.compiler.caches import compile_cache
from trainkit.compiler.compiler import Compiler
from trainkit.compiler.errors import first_line
from trainkit.compiler.policies import without_policies
from trainkit.compiler.source import raising_line
from trainkit.config.errors import ConfigError
from trainkit.config.schema import CompileConfig, DdpConfig, Mode, OnError, RunConfig
from trainkit.config.validation import check
from trainkit.diagnosis.output import suppressed_output
from trainkit.distributed.topology import Devices, select_devices
from trainkit.inputs import Batch, map_tensors
from trainkit.metrics.timer import timed_ms
from trainkit.training import checkpoint
from trainkit.training.criterion import Criterion, build_criterion
from trainkit.training.model import build_data, build_model
from trainkit.training.objective import build_objective
from trainkit.training.optimizer import build_optimizer, clip_in_kernel, clips_in_kernel, gradient_norm
from trainkit.training.precision import TRUE_DTYPES, attention_kernel, call_with_autocast

NUM_BATCHES = NUM_WARMUP = 10  # steps: beyond torch's recompile limit of 8
PHASES = ("forward", "training")
OPTIMIZER = "trainkit: optimizer"
STEP = "trainkit: step"


@dataclass(frozen=True)
class Subject:
    """A network on the CPU, not compiled, its criterion, the preparation of its data, its optimizer, and batches."""

    config: RunConfig
    net: nn.Module
    criterion: Criterion
    prepare: nn.Module
    optimizer: Callable[..., Optimizer]
    batches: list[Batch]
    devices: Devices

    @property
    def device(self) -> torch.device:
        return torch.device(self.devices.type)


def build_subject(config: RunConfig) -> Subject:
    """The network and the first batches of a config, with the parameters of `ckpt_path`, if there is one.

    Its compile settings are those of `breakable`. Raises ConfigError for a config that cannot run.
    """
    check(config)
    if config.amp.precision in TRUE_DTYPES:
        raise ConfigError(f"amp.precision = {config.amp.precision}: is not diagnosed; use amp=bf16")
    config = replace(config, compile=breakable(config.compile))
    seed_everything(config.seed, verbose=False)
    devices = select_devices(config)
    data = build_data(config)
    with suppressed_output():  # building calls the network, for the shape of its outputs
        criterion = build_criterion(config)
        net = build_model(config, data, devices, criterion)
    checkpoint.load_parameters(config, net)
    optimizer = build_optimizer(config)
    attention_kernel(config, devices)  # refuses a kernel that the device does not have
    torch.set_float32_matmul_precision(config.amp.matmul_precision)
    data.prepare_data()
    data.setup("fit")
    batches = [tuple(batch) for batch in islice(data.train_dataloader(), NUM_BATCHES)]
    return Subject(config, net, criterion, data.prepare, optimizer, batches, devices)


def breakable(config: CompileConfig) -> CompileConfig:
    """The config with mode default in place of eager, and without settings that hide breaks or recompiles."""
    mode = config.mode
    parts = []
    for part in config.parts:
        part = replace(part, fullgraph=False)
        if mode == "eager":
            part = replace(part, mode=Mode["default"])  # a part without a mode of its own has eager, too
        parts.append(part)
    if mode == "eager":
        mode = Mode["default"]
    return replace(
        without_policies(config),
        mode=mode,
        parts=parts,
        fullgraph=False,
        on_error=OnError["raise"],
        max_recompiles=None,
        on_recompile_limit=OnError["eager"],
    )


class Trial:
    """A compiled copy of the subject's network that makes the steps of a phase.

    A step of `forward` is evaluation without gradient, one of `training` is forward, backward and optimizer.
    """

    def __init__(self, subject: Subject, phase: str, compile_config: CompileConfig):
        config = subject.config
        seed_everything(config.seed, verbose=False)
        self.compiler = Compiler(compile_config)
        self._subject = subject
        self._training = phase == "training"
        self._device = subject.device
        self._copies: dict[int, Any] = {}  # by the id of the original
        net = copy.deepcopy(subject.net, self._copies)
        prepare, criterion = copy.deepcopy((subject.prepare, subject.criterion))
        self._objective = build_objective(config, net, prepare, criterion).to(self._device).train(self._training)
        self._optimizer = subject.optimizer(self._objective)
        self._precision = config.amp.precision
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=self._precision == "16-mixed")
        self.batches = [self._copied(batch) for batch in subject.batches]  # a network may write to its inputs

    def _copied(self, batch: Batch) -> Batch:
        copied: Batch = map_tensors(lambda tensor: tensor.to(self._device, copy=True), batch)
        return copied

    def counterpart(self, other: "Trial", copied: Any) -> Any:
        """This trial's copy of the object that `copied` is the other trial's copy of; `copied` if it is no copy."""
        for original_id, copied_object in other._copies.items():
            if copied_object is copied:
                return self._copies.get(original_id, copied)
        return copied

    @contextmanager
    def running(self, cache: str = "warm") -> Iterator["Trial"]:
        """Within it, the network is compiled and its output is suppressed. Compiled code is dropped before and after.

        `cache` is a value of `compile.cache`.
        """
        config = self._subject.config
        with (
            attention_kernel(config, self._subject.devices),
            compile_cache(cache, config.trainer.attention),
            suppressed_output(),
            self.compiler,
        ):
            self.compiler.apply(self._objective, DdpConfig(optimize_ddp=False))
            yield self
        dynamo.reset()

    def step(self, batch: Batch) -> None:
        with record_function(STEP), torch.set_grad_enabled(self._training):
            outputs = call_with_autocast(self.compiler, batch, self._precision)
            if not self._training:
                return
            self._scaler.scale(outputs).backward()
            with record_function(OPTIMIZER):
                self._clip()
                self._scaler.step(self._optimizer)
                self._scaler.update()
                self._optimizer.zero_grad(set_to_none=True)

    def _clip(self) -> None:
        """Clip as Task.configure_gradient_clipping and Lightning do, which unscales before it."""
        max_norm = self._subject.config.trainer.gradient_clip_val
        if max_norm is None:
            return
        if clips_in_kernel(self._optimizer):
            scaler = self._scaler if self._scaler.is_enabled() else None
            clip_in_kernel(self._optimizer, max_norm, gradient_norm(self._optimizer, scaler))
        else:
            self._scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(self._objective.parameters(), max_norm)

    def first_step(self) -> None:
        self.step(self.batches[0])

    def warm_up(self) -> None:
        """Make steps on the first batch until nothing compiles any more."""
        for _ in range(NUM_WARMUP):
            self.first_step()

    def step_ms(self, num_steps: int) -> list[float]:
        """Milliseconds of each of `num_steps` steps on the first batch."""
        return timed_ms(self.first_step, num_steps, self._device.type == "cuda")


def run_eager_steps(subject: Subject, phase: str, compile_config: CompileConfig, num_steps: int = 1) -> None:
    """Make the phase's steps on its first `num_steps` batches, uncompiled."""
    with Trial(subject, phase, replace(compile_config, mode=Mode["eager"])).running() as trial:
        for batch in trial.batches[:num_steps]:
            trial.step(batch)


def describe_failure(
    subject: Subject, phase: str, compile_config: CompileConfig, error: Exception, num_steps: int = 1
) -> str:
    """An error in the phase's first `num_steps` steps, in a line.

    If the same steps run in eager, the line says so, and names the source line that raises when it is compiled.
    """
    message = first_line(error)
    if compile_config.mode == "eager":
        return message
    try:
        run_eager_steps(subject, phase, compile_config, num_steps)
    except Exception:  # the same error or another: it is not the compiler's
        return message
    message = f"eager runs, the compiled network raises {message}"
    location = raising_line(error)
    if location.file:
        message += f"; at {location.file}:{location.line}: {location.code}"
    return message
