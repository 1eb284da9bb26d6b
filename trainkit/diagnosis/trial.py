"""What is diagnosed, and its steps: a network, first batches of its data, and copies of it that are compiled some way.

Everything runs on copies, in the process that calls: one of its own, since compiled code and counters of a process are
dropped. Nothing of the user's changes.
"""

import copy
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from lightning import seed_everything
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.profiler import record_function

from trainkit.compiler import dynamo
from trainkit.compiler.caches import compile_cache
from trainkit.compiler.compiler import Compiler
from trainkit.compiler.errors import first_line
from trainkit.compiler.source import shortened, source_line, user_frames
from trainkit.config.schema import CompileConfig, Mode, OnError, RunConfig
from trainkit.config.validation import check
from trainkit.data.module import Batch
from trainkit.diagnosis.output import silenced
from trainkit.distributed.topology import Devices, select_devices
from trainkit.metrics.timer import timed_ms
from trainkit.training import checkpoint
from trainkit.training.model import build_data, build_model
from trainkit.training.objective import build_objective
from trainkit.training.optimizer import build_optimizer, clip_in_kernel, clips_in_kernel
from trainkit.training.precision import attention_kernel, call_with_autocast

NUM_BATCHES = NUM_WARMUP = 10  # steps: beyond torch's recompile limit of 8
PHASES = ("forward", "training")
OPTIMIZER = "trainkit: optimizer"
STEP = "trainkit: step"


@dataclass(frozen=True)
class Subject:
    """What is diagnosed: a network on the CPU, not compiled, what prepares its data, and batches that it is given."""

    config: RunConfig
    net: nn.Module
    prepare: nn.Module
    optimizer: Callable[..., Optimizer]
    batches: list[Batch]
    devices: Devices

    @property
    def device(self) -> torch.device:
        return torch.device(self.devices.type)


def subject(config: RunConfig) -> Subject:
    """The network and the first batches that the config asks for. Raises ConfigError for what cannot be run as asked.

    Of compile.* the mode eager becomes default, fullgraph false, on_error raise, and max_recompiles null
    with nothing to do at it: what breaks is what is looked for. Parameters are those of `ckpt_path`, where one is
    given: what a network does may depend on them.
    """
    check(config)
    config = replace(config, compile=breakable(config.compile))
    seed_everything(config.seed, verbose=False)
    devices = select_devices(config)
    data = build_data(config)
    with silenced():  # building it calls it, for the shape of what comes out
        net = build_model(config, data, devices)
    checkpoint.load_parameters(config, net)
    optimizer = build_optimizer(config)
    attention_kernel(config, devices)  # refuses what the device has not
    torch.set_float32_matmul_precision(config.amp.matmul_precision.value)
    data.prepare_data()
    data.setup("fit")
    batches = [tuple(batch) for batch in islice(data.train_dataloader(), NUM_BATCHES)]
    return Subject(config, net, data.prepare, optimizer, batches, devices)


def breakable(asked: CompileConfig) -> CompileConfig:
    """What of `compile.*` is diagnosed: the mode eager is default, and nothing hides what breaks."""
    parts = [replace(part, fullgraph=False) for part in asked.parts]
    if asked.mode.value == "eager":  # which parts that name no mode have too
        parts = [replace(part, mode=Mode["default"]) for part in parts]
        asked = replace(asked, mode=Mode["default"])
    # What cannot be compiled, or is compiled again and again, is to be seen.
    asked = replace(asked, max_recompiles=None, on_recompile_limit=OnError["eager"])
    return replace(asked, fullgraph=False, parts=parts, on_error=OnError["raise"])


class Trial:
    """A copy of the subject's network that is compiled as `compiled` says, ready to make steps of a phase: `forward` is
    evaluation without gradient, `training` is forward, backward and optimizer."""

    def __init__(self, of: Subject, phase: str, compiled: CompileConfig):
        seed_everything(of.config.seed, verbose=False)
        self.compiler = Compiler(compiled)
        self._of, self._training, self._device = of, phase == "training", of.device
        self._copies: dict[int, Any] = {}  # by the id of what each is of
        net, prepare = copy.deepcopy(of.net, self._copies), copy.deepcopy(of.prepare)
        self._objective = build_objective(of.config, net, prepare).to(of.device).train(self._training)
        self._optimizer = of.optimizer(self._objective.parameters())
        self._precision = of.config.amp.precision.value
        self._scaler = torch.amp.GradScaler(of.device.type, enabled=self._precision == "16-mixed")
        # Copies: a network may write to its inputs.
        self.batches = [tuple(tensor.to(of.device, copy=True) for tensor in batch) for batch in of.batches]

    def twin(self, other: "Trial", its: Any) -> Any:
        """What is here in the place of an object of another trial's network; the object itself where it is no copy."""
        first = next((number for number, copied in other._copies.items() if copied is its), None)
        return its if first is None else self._copies.get(first, its)

    @contextmanager
    def running(self, cache: str = "warm") -> Iterator["Trial"]:
        """Within it the network is compiled, from nothing: compiled code of before is dropped, and afterwards its.
        What the network prints is left out (silence.silenced)."""
        config = self._of.config
        with (
            attention_kernel(config, self._of.devices),
            compile_cache(cache, config.trainer.attention.value),
            silenced(),
            self.compiler,
        ):
            self.compiler.apply(self._objective, False)
            yield self
        dynamo.reset()

    def step(self, batch: tuple[Tensor, ...]) -> None:
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
        """As training does: Task.configure_gradient_clipping, and Lightning, which unscales before it."""
        if (max_norm := self._of.config.trainer.gradient_clip_val) is None:
            return
        if clips_in_kernel(self._optimizer):
            clip_in_kernel(self._optimizer, max_norm, self._scaler if self._scaler.is_enabled() else None)
        else:
            self._scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(self._objective.parameters(), max_norm)

    def first_step(self) -> None:
        self.step(self.batches[0])

    def warm_up(self) -> None:
        """So many steps on the first batch that nothing compiles any more."""
        for _ in range(NUM_WARMUP):
            self.first_step()

    def step_ms(self, num_steps: int) -> list[float]:
        """Milliseconds of each of so many steps on the first batch."""
        return timed_ms(self.first_step, num_steps, self._device.type == "cuda")


def eager_steps(of: Subject, phase: str, compiled: CompileConfig, num_steps: int = 1) -> None:
    """Make the phase's steps on so many of its batches, uncompiled."""
    with Trial(of, phase, replace(compiled, mode=Mode["eager"])).running() as trial:
        for batch in trial.batches[:num_steps]:
            trial.step(batch)


def failure(of: Subject, phase: str, compiled: CompileConfig, error: Exception, num_steps: int = 1) -> str:
    """What is said of an error in the phase's first `num_steps` steps. Where eager makes the same steps, it says so:
    the network is right, and the compiled one alone raises, in the source line that is named."""
    said = first_line(error)
    if compiled.mode.value == "eager":
        return said
    try:
        eager_steps(of, phase, compiled, num_steps)
    except Exception:  # the same in eager, or another: it is not the compiler's
        return said
    file, line = _raised_at(error)
    at = f"; at {shortened(file)}:{line}: {source_line(file, line)}" if file else ""
    return f"eager runs, the compiled network raises {said}{at}"


def _raised_at(error: Exception) -> tuple[str, int]:
    """The innermost place of an error's in the network's source, in files that are installed only if in no other; of
    what was raised while it was traced torch names it in its text. ("", 0): none."""
    traced = re.findall(r'File "([^"]+)", line (\d+)', str(error).partition("from user code:")[2])
    frames = [*traceback.extract_tb(error.__traceback__)]
    frames += [traceback.FrameSummary(file, int(line), "", lookup_line=False) for file, line in traced]
    own = user_frames(frames)
    return (own[-1].filename, own[-1].lineno or 0) if own else ("", 0)
