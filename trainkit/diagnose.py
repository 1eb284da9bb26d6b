"""What keeps torch.compile from its best on a network, line by line, and what that costs.

Everything runs on copies, in the process that calls: one of its own, since compiled code and counters of a process are
dropped. Nothing of the user's changes. Forward is evaluation without gradient, training is forward, backward and
optimizer; both run over the same first NUM_BATCHES batches of the training data, in one process on one device.
"""

import copy
import multiprocessing
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from lightning import seed_everything
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile, record_function

from trainkit import advice, build, compile, facts, graphs
from trainkit.compile import Compiler, first_line
from trainkit.config import CompileConfig, Mode, RunConfig, check
from trainkit.data.module import Batch
from trainkit.findings import Diagnosis, Finding, Phase, merged
from trainkit.meters import machine, timed_ms
from trainkit.outcomes import NoOutcomeError, held_still
from trainkit.task import Objective, transform

NUM_BATCHES = 8
NUM_WARMUP, NUM_TIMED, NUM_PROFILED = 12, 30, 5  # steps; warm-up is beyond torch's recompile limit of 8
AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
PHASES = ("forward", "training")
STAGE_BACKENDS = ("eager", "aot_eager", "inductor")
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
    device: torch.device


def subject(config: RunConfig) -> Subject:
    """The network and the first batches that the config asks for. Raises ConfigError for what cannot be run as asked.

    Of compile.* the mode eager becomes default, and fullgraph false: what breaks is what is looked for.
    """
    check(config)
    config = replace(config, compile=_breakable(config.compile))
    seed_everything(config.seed, verbose=False)
    devices = build.devices(config)
    data = build.data(config)
    net = build.net(config, data)
    optimizer = build.optimizer(config)
    if config.compile.mark_dynamic:
        compile.check_dims(config.compile.mark_dynamic, data.sample())
    compile.check(config.compile, net, devices.type)
    torch.set_float32_matmul_precision(config.amp.matmul_precision.value)
    data.setup("fit")
    batches = [tuple(batch) for batch in islice(data.train_dataloader(), NUM_BATCHES)]
    return Subject(config, net, data.prepare, optimizer, batches, torch.device(devices.type))


def _breakable(asked: CompileConfig) -> CompileConfig:
    parts = [replace(part, fullgraph=False) for part in asked.parts]
    if asked.mode.value == "eager":  # which parts that name no mode have too
        parts = [replace(part, mode=Mode["default"]) for part in parts]
        asked = replace(asked, mode=Mode["default"])
    return replace(asked, fullgraph=False, parts=parts)


def diagnose(of: Subject) -> Diagnosis:
    """All findings of both phases, with what the compiled share of each is and what each graph break costs."""
    outcomes = {phase: _found(of, phase) for phase in PHASES}
    found = merged(finding for _, findings in outcomes.values() for finding in findings)
    phases = [phase if phase.error else _timed(of, phase) for phase, _ in outcomes.values()]
    return replace(described(of), phases=phases, findings=_costs(of, found, phases))


def look(of: Subject) -> Diagnosis:
    """All findings of both phases, nothing timed."""
    outcomes = [_found(of, phase) for phase in PHASES]
    found = merged(finding for _, findings in outcomes for finding in findings)
    return replace(described(of), phases=[phase for phase, _ in outcomes], findings=found)


def described(of: Subject) -> Diagnosis:
    config = of.config
    return Diagnosis(
        model=config.job.model,
        data=config.job.data,
        batch_size=config.data.get("batch_size"),
        compile_mode=config.compile.mode.value,
        precision=config.amp.precision.value,
        overrides=list(config.job.overrides),
        machine=machine(of.device),
        phases=[],
        findings=[],
    )


class _Trial:
    """A copy of the subject's network that is compiled as `compiled` says, ready to make steps of a phase."""

    def __init__(self, of: Subject, phase: str, compiled: CompileConfig):
        seed_everything(of.config.seed, verbose=False)
        self.compiler = Compiler(compiled, _unheard, _unheard)
        self._training, self._device = phase == "training", of.device
        self._objective = Objective(
            copy.deepcopy(of.net), copy.deepcopy(of.prepare), whole_net=compiled.scope.value == "net"
        )
        transform(self._objective, of.config.trainer)
        self._objective.to(of.device).train(self._training)
        self._optimizer = of.optimizer(self._objective.parameters())
        self._mixed = AUTOCAST.get(of.config.amp.precision.value)
        self._scaler = torch.amp.GradScaler(of.device.type, enabled=self._mixed is torch.float16)
        self.batches = [(inputs.to(of.device), targets.to(of.device)) for inputs, targets in of.batches]

    @contextmanager
    def running(self) -> Iterator["_Trial"]:
        """Within it the network is compiled, from nothing: compiled code of before is dropped, and afterwards its."""
        with self.compiler:
            self.compiler.apply(self._objective, False)
            yield self
        facts.begin()

    def step(self, batch: tuple[Tensor, Tensor]) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        mixed = torch.autocast(self._device.type, self._mixed, cache_enabled=False) if self._mixed else nullcontext()
        with record_function(STEP), torch.set_grad_enabled(self._training):
            with mixed:
                outputs = self.compiler(*batch)
            if not self._training:
                return
            self._scaler.scale(outputs).backward()
            with record_function(OPTIMIZER):
                self._scaler.step(self._optimizer)
                self._scaler.update()
                self._optimizer.zero_grad(set_to_none=True)

    def step_ms(self) -> list[float]:
        """Milliseconds of NUM_TIMED steps on the first batch, after NUM_WARMUP that are not timed."""
        for _ in range(NUM_WARMUP):
            self.step(self.batches[0])
        return timed_ms(lambda: self.step(self.batches[0]), NUM_TIMED, self._device.type == "cuda")


def _unheard(kind: str) -> None:
    """Compiles of a diagnosis are in no run's record."""


def _found(of: Subject, name: str) -> tuple[Phase, list[Finding]]:
    """The phase's steps over all batches, compiled as asked, and what they showed up to their end or their failure."""
    error = None
    trial = _Trial(of, name, of.config.compile)
    with trial.running():
        try:
            for batch in trial.batches:
                trial.step(batch)
        except Exception as caught:  # of any kind: what was found before it stays
            error = first_line(caught)
        seen, recompiles = trial.compiler.facts(), facts.recompile_sites()
    found = [_break(site) for site in seen.graph_breaks or []]
    alike = len({tuple(tensor.shape for tensor in batch) for batch in trial.batches}) == 1
    costs = zip(seen.recompile_shapes or [], seen.recompile_times_s or [], strict=True)
    for site, (shapes, spent_s) in zip(recompiles, costs, strict=True):
        found.append(_recompile(site, None if alike else shapes, spent_s))
    found += [_skip(reason) for reason in _skips(of.config.compile, seen)]
    phase = Phase(name, num_graphs=seen.num_graphs, recompile_limit_hit=seen.recompile_limit_hit, error=error)
    return phase, [replace(finding, phases=[name]) for finding in found]


def _break(site: dict[str, Any]) -> Finding:
    told = advice.of_break(site)
    where = {name: site[name] for name in ("file", "line", "code", "uncompiled")}
    reason = " ".join(filter(None, [site["reason"], site["explanation"]]))
    return Finding("graph break", told.cause, told.why, told.remedy, reason, **where)


def _recompile(site: dict[str, Any], shapes: facts.Shapes | None, spent_s: float) -> Finding:
    told = advice.of_recompile(site["reason"])
    where = {name: site[name] for name in ("file", "line", "code")}
    counted: dict[str, Any] = {"num_recompiles": 1, "recompile_s": spent_s}
    counted["recompile_shapes"] = [shapes] if shapes else []
    return Finding("recompile", told.cause, told.why, told.remedy, site["reason"], **where, **counted)


def _skip(reason: str) -> Finding:
    told = advice.of_skip(reason)
    named = re.findall(r'File "([^"]+)", line (\d+)', reason)
    file, line = (named[-1][0], int(named[-1][1])) if named else (None, None)
    code = facts.source_line(file, line)
    return Finding("CUDA graphs skipped", told.cause, told.why, told.remedy, reason, file=file, line=line, code=code)


def _skips(config: CompileConfig, seen: facts.CompileFacts) -> list[str]:
    """Why CUDA graphs were skipped; where torch names no reason, what facts conclude."""
    if not seen.num_cudagraph_skips and seen.effective_mode == config.mode.value:
        return []
    concluded = [seen.effective_mode_reason] if "CUDA graphs" in (seen.effective_mode_reason or "") else []
    return seen.cudagraph_skips or [reason for reason in concluded if reason]


def _timed(of: Subject, phase: Phase) -> Phase:
    """The phase with its step times, compiled and in eager, and the compiled share."""
    eager = replace(of.config.compile, mode=Mode["eager"])
    with _Trial(of, phase.name, of.config.compile).running() as trial:
        compiled_ms = median(trial.step_ms())
    with _Trial(of, phase.name, eager).running() as trial:
        eager_ms = median(trial.step_ms())
    with _Trial(of, phase.name, graphs.watched(of.config.compile)).running() as trial:
        compiled, optimizer = _shares(trial)
    return replace(
        phase,
        step_time_ms=compiled_ms,
        eager_step_time_ms=eager_ms,
        compiled_frac=compiled,
        optimizer_frac=optimizer,
    )


def _shares(trial: _Trial) -> tuple[float | None, float | None]:
    """The shares of the step that run in compiled graphs and in the optimizer, by torch's profiler.

    On a CPU: the time between entering a graph and leaving it, over the time of the steps. On a GPU: the time of the
    kernels that were launched in between, over that of all. The profiler itself takes time, of many small operations
    more than of few large ones: eager parts look larger than they are.
    """
    for _ in range(NUM_WARMUP):
        trial.step(trial.batches[0])
    on_gpu = trial.batches[0][0].is_cuda
    with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu) as profiled:
        for _ in range(NUM_PROFILED):
            trial.step(trial.batches[0])
        if on_gpu:
            torch.cuda.synchronize()
    events = list(profiled.events() or [])

    def spent(*names: str) -> float:
        mine = [event for event in events if event.name in names and event.device_type == torch.autograd.DeviceType.CPU]
        return sum(event.device_time_total if on_gpu else event.cpu_time_total for event in mine)

    kernels = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA and not e.is_user_annotation]
    whole = sum(event.time_range.elapsed_us() for event in kernels) if on_gpu else spent(STEP)
    if not whole:
        return None, None
    return min(spent(graphs.FORWARD, graphs.BACKWARD) / whole, 1.0), spent(OPTIMIZER) / whole


def _costs(of: Subject, found: list[Finding], phases: list[Phase]) -> list[Finding]:
    """The findings, each graph break with what its line costs a step of training (of forward, if it is found there
    alone).

    Measured by running both: the median step of the network as it is, less that of the same network in which what
    this one line computes into plain Python (a number, the side of a branch, nothing of a print) is held still at
    what it is on the first batch, so that the graph goes on through it. All other breaks stay. So the figure is what
    the line's own work, its waiting for the device, the break and the fusion lost over it cost together: the most
    that a remedy can gain, were it free. It is not measured for lines whose result is a tensor. Its noise is how far
    two measurements of the network as it is lay apart, one before all others and one after: below that it says nothing.
    """
    breaks = [finding for finding in found if finding.kind == "graph break" and finding.file and finding.line]
    ran = {phase.name for phase in phases if phase.error is None}
    measured: dict[int, Finding] = {}
    for phase in reversed(PHASES):
        mine = [f for f in breaks if phase in f.phases and id(f) not in measured] if phase in ran else []
        if mine:
            measured |= _costs_in(of, phase, mine)
    return [measured.get(id(finding), finding) for finding in found]


def _costs_in(of: Subject, phase: str, breaks: list[Finding]) -> dict[int, Finding]:
    before = _step_ms(of, phase)
    without: dict[int, float] = {}
    measured: dict[int, Finding] = {}
    for finding in breaks:
        try:
            without[id(finding)] = _step_ms(of, phase, (str(finding.file), finding.line or 0))
        except NoOutcomeError as error:
            measured[id(finding)] = replace(finding, cost_unknown=str(error))
        except Exception as error:  # of any kind: the program without the line is ours, not the user's
            measured[id(finding)] = replace(finding, cost_unknown=f"without it: {first_line(error)}")
    after = _step_ms(of, phase)
    for finding in breaks:
        if id(finding) in without:
            cost, noise = (before + after) / 2 - without[id(finding)], abs(before - after)
            measured[id(finding)] = replace(finding, cost_ms=cost, cost_noise_ms=noise)
    return measured


def _step_ms(of: Subject, phase: str, held: tuple[str, int] | None = None) -> float:
    """The median step, with the outcome of a line held still where one is given."""
    trial = _Trial(of, phase, of.config.compile)
    first = _Trial(of, phase, replace(of.config.compile, mode=Mode["eager"]))
    with held_still(*held, lambda: _eager_step(first)) if held else nullcontext(), trial.running():
        return median(trial.step_ms())


def _eager_step(trial: _Trial) -> None:
    with trial.running():
        trial.step(trial.batches[0])


def write_code(of: Subject, folder: Path) -> list[Path]:
    """Write the graphs of both phases and the code generated for them into `folder/forward` and `folder/training`, as
    graphs.watched names them. Returns the files. The cache is a fresh one: what comes from a cache has no code."""
    for phase in PHASES:
        (folder / phase).mkdir(parents=True, exist_ok=True)
        with compile.cache("cold"), _Trial(of, phase, graphs.watched(of.config.compile, folder / phase)).running() as t:
            for batch in t.batches:
                t.step(batch)
    return sorted(path for phase in PHASES for path in (folder / phase).iterdir())


def stages(config: RunConfig) -> dict[str, dict[str, float]]:
    """Seconds that the first training step's compile spends in each of facts.STAGES, by backend, each in a fresh
    process with a cold cache, without what a process pays once for imports (Compiler.start_up)."""
    seconds = {}
    for backend in STAGE_BACKENDS:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            seconds[backend] = process.submit(stages_of, config, backend).result()
    return seconds


def stages_of(config: RunConfig, backend: str) -> dict[str, float]:
    """One backend's stages, in this process."""
    mode = config.compile.mode if backend == "inductor" else Mode["default"]
    config = replace(config, compile=replace(config.compile, backend=backend, mode=mode))
    of = subject(config)
    with compile.cache("cold"):
        trial = _Trial(of, "training", of.config.compile)
        with trial.running():
            trial.compiler.start_up(of.device)
            trial.step(trial.batches[0])
            return facts.stages_s() or {}
