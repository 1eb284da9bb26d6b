"""What a network's step gains from being compiled, how much of it runs compiled, and what each graph break costs.

Measured by running the variants of one phase by turns, NUM_ROUNDS times, each time compiled anew, in one process: what
drifts on the machine hits all alike. A difference or a ratio is taken within each round, and its interval is over
rounds.
"""

import logging
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from trainkit.compiler import graphs
from trainkit.compiler.errors import first_line
from trainkit.config.schema import CompileConfig, Mode
from trainkit.diagnosis.findings import Finding, Phase
from trainkit.diagnosis.frozen_lines import NoOutcomeError, held_still
from trainkit.diagnosis.trial import OPTIMIZER, STEP, Subject, Trial, eager_steps, failure
from trainkit.stats import Estimate, estimate

logger = logging.getLogger(__name__)
NUM_ROUNDS, NUM_TIMED, NUM_PROFILED = 6, 20, 5  # rounds; steps of each of them


@dataclass
class Variant:
    """One program that makes the phase's steps: what it is called, how it is compiled, and the line whose outcome is
    held still, if any. `rounds_ms` has the median step of each round; `failed` says why there are no more."""

    name: str
    compiled: CompileConfig
    line: tuple[str, int] | None = None
    rounds_ms: list[float] = field(default_factory=list)
    failed: str | None = None

    def measure(self, of: Subject, phase: str) -> None:
        if self.failed is not None:
            return
        try:
            with held_still(*self.line, lambda: eager_steps(of, phase, self.compiled)) if self.line else nullcontext():
                self._time(of, phase)
        except NoOutcomeError as error:
            self.failed = str(error)
        except Exception as error:  # of any kind: a program without the line is ours, not the user's
            self.failed = f"without it: {first_line(error)}"

    def _time(self, of: Subject, phase: str) -> None:
        try:
            with Trial(of, phase, self.compiled).running() as trial:
                trial.warm_up()
                self.rounds_ms.append(median(trial.step_ms(NUM_TIMED)))
        except Exception as error:
            failed = failure(of, phase, self.compiled, error)
            self.failed = f"{'without it' if self.line else 'when it was timed'}: {failed}"


def measured(of: Subject, phase: Phase, breaks: Iterable[Finding]) -> tuple[Phase, dict[int, Finding]]:
    """The phase with its step times, gain and shares; and by their id() the graph breaks with what their lines cost.

    The cost of a break: the median step of the network as it is, less that of the same network in which what this one
    line computes into plain Python (a number, the side of a branch, nothing of a print) is held still at what it is on
    the first batch, so that the graph goes on through it. All other breaks stay. So the figure is what the line's own
    work, its waiting for the device, the break and the fusion lost over it cost together: the most that a remedy can
    gain, were it free. It is not measured for lines whose result is a tensor.
    """
    asked = of.config.compile
    compiled, eager = Variant("as compiled", asked), Variant("in eager", replace(asked, mode=Mode["eager"]))
    without = _without(list(breaks), asked)
    variants = [compiled, eager, *(variant for _, variant in without)]
    for number in range(NUM_ROUNDS):
        logger.info("%s: measuring, round %d of %d", phase.name, number + 1, NUM_ROUNDS)
        for variant in variants if number % 2 == 0 else reversed(variants):
            if number == 0:  # the longest, and the others are like it
                logger.info("%s: measuring %s", phase.name, variant.name)
            variant.measure(of, phase.name)
    if failed := compiled.failed or eager.failed:
        return replace(phase, error=failed), {id(f): replace(f, cost_unknown="the phase failed") for f, _ in without}
    logger.info("%s: profiling what share of the step runs compiled", phase.name)
    phase = replace(
        phase,
        step_time_ms=estimate(compiled.rounds_ms),
        eager_step_time_ms=estimate(eager.rounds_ms),
        gain=estimate([over / under for over, under in zip(eager.rounds_ms, compiled.rounds_ms, strict=True)]),
    )
    phase = _with_shares(phase, Trial(of, phase.name, graphs.watched(asked)), compiled.rounds_ms)
    return phase, {id(finding): _with_cost(finding, compiled, variant) for finding, variant in without}


def _without(breaks: list[Finding], asked: CompileConfig) -> list[tuple[Finding, Variant]]:
    """Each break with the program without it."""
    variants = []
    for number, finding in enumerate(breaks, 1):
        name = f"without break {number} of {len(breaks)} ({finding.file}:{finding.line})"
        variants.append((finding, Variant(name, asked, (str(finding.file), finding.line or 0))))
    return variants


def _with_cost(finding: Finding, compiled: Variant, without: Variant) -> Finding:
    if without.failed is not None:
        return replace(finding, cost_unknown=without.failed)
    rounds = zip(compiled.rounds_ms, without.rounds_ms, strict=True)
    return replace(finding, cost_ms=estimate([more - less for more, less in rounds]))


def _with_shares(phase: Phase, trial: Trial, rounds_ms: list[float]) -> Phase:
    """The phase with the shares of the step that run in compiled graphs and in the optimizer, and on a GPU how much of
    it (of the rounds that were timed) the GPU works, by torch's profiler, over as many rounds of one compiled program.

    On a CPU: the time between entering a graph and leaving it, over the time of the steps. On a GPU: the time of the
    kernels that were launched in between, over that of all. The profiler itself takes time, of many small operations
    more than of few large ones: eager parts look larger than they are. A kernel's own time it leaves as it is.
    """
    with trial.running():
        trial.warm_up()
        profiled = [round_ for _ in range(NUM_ROUNDS) if (round_ := _profiled(trial)) is not None]
    if len(profiled) < NUM_ROUNDS:
        return phase
    busy = [ms / step_ms for (*_, ms), step_ms in zip(profiled, rounds_ms, strict=True) if ms is not None]
    return replace(
        phase,
        compiled_frac=_share([compiled for compiled, _, _ in profiled]),
        optimizer_frac=_share([optimizer for _, optimizer, _ in profiled]),
        device_busy_frac=_share(busy) if busy else None,
    )


def _share(rounds: list[float]) -> Estimate:
    return estimate([min(share, 1.0) for share in rounds])


def _profiled(trial: Trial) -> tuple[float, float, float | None] | None:
    """The two shares, and the milliseconds of a step that the GPU works."""
    on_gpu = trial.batches[0][0].is_cuda
    with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu) as profiled:
        for _ in range(NUM_PROFILED):
            trial.first_step()
        if on_gpu:
            torch.cuda.synchronize()
    events = list(profiled.events() or [])

    def spent(*names: str) -> float:
        mine = [event for event in events if event.name in names and event.device_type == torch.autograd.DeviceType.CPU]
        return sum(event.device_time_total if on_gpu else event.cpu_time_total for event in mine)

    kernels = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA and not e.is_user_annotation]
    whole = sum(event.time_range.elapsed_us() for event in kernels) if on_gpu else spent(STEP)
    if not whole:
        return None
    kernels_ms = whole / 1000 / NUM_PROFILED if on_gpu else None
    return spent(graphs.FORWARD, graphs.BACKWARD) / whole, spent(OPTIMIZER) / whole, kernels_ms
