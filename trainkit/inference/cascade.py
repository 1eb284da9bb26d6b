"""The stages of a cascade: the run's own network first, then those of `forward.fallback`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import torch
from lightning import seed_everything

from trainkit.compiler import facts
from trainkit.compiler.apply import give_own_code
from trainkit.compiler.compiler import Compiler
from trainkit.compiler.packages import PACKAGE_FACTS
from trainkit.compiler.regions import select_targets
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.schema import RunConfig
from trainkit.data.module import DataModule
from trainkit.distributed.topology import Devices, select_devices
from trainkit.inputs import Inputs, Shape
from trainkit.metrics.calls import CallMeters
from trainkit.metrics.memory import used_frac
from trainkit.results.effective import CompileFacts
from trainkit.results.facts import ExpectedLatency
from trainkit.results.row import finite
from trainkit.stats import percentile
from trainkit.training import checkpoint
from trainkit.training.model import build_model
from trainkit.training.objective import Forward, convert_to_channels_last
from trainkit.training.precision import AUTOCAST_DTYPES

EXPECTED_PERCENTILE = 95  # of a stage's times: decides whether a call fits into the remaining time
TYPICAL_PERCENTILE = 50  # decides which stage is the fastest


@dataclass
class CascadeStage:
    """A network, how it is called, and the times of its calls so far by the shape of the inputs.

    `settings` is its entry in `forward.fallback`; "" for the run's own network.
    """

    settings: str
    config: RunConfig
    network: Forward
    compiler: Compiler
    times_ms: dict[Shape, list[float]] = field(default_factory=dict)
    facts: CompileFacts | None = None
    autotune_s: dict[str, float] = field(default_factory=dict)
    package: Callable[[Inputs], Any] | None = None  # compiled ahead of time, and called in place of the network
    accuracy: float | None = None  # over all batches of the calls

    def place(self, device: torch.device) -> None:
        """Lay the network out as requested, in eval mode on the device."""
        if self.config.trainer.channels_last:
            convert_to_channels_last(self.network)
        self.network.eval().to(device)

    def compile(self) -> None:
        """Compile in place."""
        if self.package is None:
            self.compiler.apply(self.network, self.config.ddp)

    @property
    def call(self) -> Callable[[Inputs], Any]:
        """Inputs -> outputs."""
        return self.package or self.compiler

    @contextmanager
    def ready(self, device: torch.device) -> Iterator[None]:
        """A context in which the network is called as requested, without gradients."""
        precision = self.config.amp.precision
        dtype = AUTOCAST_DTYPES.get(precision)
        torch.set_float32_matmul_precision(self.config.amp.matmul_precision)
        without_gradients: AbstractContextManager[None] = torch.no_grad()
        if self.config.compile.mode == "eager":
            # Inference mode costs the host least. Compiled code does not get it: torch would compile the second of two
            # equal blocks again, for inputs made in inference mode, https://github.com/pytorch/pytorch/issues/134249.
            # tests/test_workarounds.py fails when it no longer does.
            without_gradients = torch.inference_mode()
        with (
            self.compiler.listening(),
            without_gradients,
            torch.autocast(device.type, dtype, enabled=dtype is not None and self.package is None),
        ):
            yield

    def expected_ms(self, shape: Shape) -> float:
        return self._percentile_ms(shape, EXPECTED_PERCENTILE)

    def typical_ms(self, shape: Shape) -> float:
        return self._percentile_ms(shape, TYPICAL_PERCENTILE)

    def _percentile_ms(self, shape: Shape, q: float) -> float:
        """Infinity without a time: something compiled in every call that should have measured it."""
        time_ms = percentile(self.times_ms[shape], q)
        return inf if time_ms is None else time_ms

    def expected_latencies(self) -> list[ExpectedLatency]:
        latencies = []
        for shape in sorted(self.times_ms):
            time_ms, time_ms_p50 = finite(self.expected_ms(shape)), finite(self.typical_ms(shape))
            latencies.append(ExpectedLatency(list(shape), time_ms, time_ms_p50))
        return latencies

    def keep_facts(self) -> None:
        """Keep the facts of the compiler since its counts were reset."""
        if self.package is None:
            self.facts = self.compiler.facts()
        else:
            self.facts = replace(PACKAGE_FACTS, effective_mode=self.config.compile.mode)
        self.autotune_s = facts.autotune_s()


def build_stages(
    config: RunConfig, fallback: Sequence[RunConfig], data: DataModule, devices: Devices, meters: CallMeters
) -> list[CascadeStage]:
    """The stages of a cascade, or the run's own network alone.

    Raises ConfigError with the complaints about all stages of `fallback` at once.
    """
    stages, complaints = [_build_stage("", config, data, devices, meters)], []
    for settings, stage_config in zip(config.forward.fallback, fallback, strict=True):
        try:
            select_devices(stage_config)  # refuses settings that the device does not have
            stages.append(_build_stage(settings, stage_config, data, devices, meters))
        except ConfigError as error:
            for complaint in error.complaints:
                complaints.append(f"forward.fallback, {complaint}")
    refuse(complaints)
    if fallback:
        _refuse_compiled_functions(stages)
        for stage in stages:
            give_own_code(stage.network)
    return stages


def _build_stage(
    settings: str, config: RunConfig, data: DataModule, devices: Devices, meters: CallMeters
) -> CascadeStage:
    """A stage whose parameters come from its checkpoint, or else from the run's seed."""
    seed_everything(config.seed, verbose=False)
    net = build_model(config, data, devices)
    checkpoint.load_parameters(config, net)
    events = meters.epoch_meter
    compiler = Compiler(config.compile, events.on_compile_start, events.on_compile_end, events.on_eager, used_frac)
    return CascadeStage(settings, config, Forward(net, data.prepare), compiler)


def _refuse_compiled_functions(stages: Sequence[CascadeStage]) -> None:
    """Raise ConfigError for a function that a stage compiles: it is replaced in its Python module, for all stages."""
    for stage in stages:
        compile_config = stage.config.compile
        if compile_config.mode == "eager" or compile_config.scope != "parts":
            continue
        for target in select_targets(compile_config, stage.network.net):
            if target.module is None:
                raise ConfigError(
                    f"compile.parts = {target.name}: a function would be compiled for every stage of forward.fallback; "
                    "name modules"
                )


# How the facts of several stages become those of the row. The others are the first stage's.
SUMMED = (
    "num_compile_failures",
    "num_graphs",
    "num_recompiles",
    "before_inductor_s",
    "num_cudagraph_skips",
    "num_cudagraphs",
    "cache_hits",
    "cache_misses",
)
JOINED = ("recompiles", "recompile_shapes", "recompile_times_s")
DISTINCT = ("graph_breaks", "cudagraph_skips")


def combine_facts(stages: Sequence[CompileFacts]) -> CompileFacts:
    """The facts of a cascade: mode and regions of the first stage, all counts and lists over the stages.

    A fact that is unknown for one stage is unknown.
    """
    combined: dict[str, Any] = {"recompile_limit_hit": _combine(stages, "recompile_limit_hit", any)}
    for name in SUMMED:
        combined[name] = _combine(stages, name, sum)
    for name in JOINED:
        combined[name] = _combine(stages, name, _join)
    for name in DISTINCT:
        combined[name] = _combine(stages, name, _distinct)
    breaks = combined["graph_breaks"]
    combined["num_graph_breaks"] = None if breaks is None else len(breaks)
    combined["cache_found"] = _combined_cache({stage.cache_found for stage in stages} - {None})
    return replace(stages[0], **combined)


def _combine(stages: Sequence[CompileFacts], name: str, combine: Callable[[list[Any]], Any]) -> Any:
    values = [getattr(stage, name) for stage in stages]
    return None if None in values else combine(values)


def _join(lists: Sequence[list[Any]]) -> list[Any]:
    joined = []
    for values in lists:
        joined += values
    return joined


def _distinct(lists: Sequence[list[Any]]) -> list[Any]:
    """Each value once: stages with the same network have the same graph breaks."""
    distinct: list[Any] = []
    for value in _join(lists):
        if value not in distinct:
            distinct.append(value)
    return distinct


def _combined_cache(states: set[str | None]) -> str | None:
    if len(states) > 1:
        return "mixed"
    return next(iter(states), None)
