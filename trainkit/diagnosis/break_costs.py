"""Measure the gain of compiling a network, the share of a step that runs compiled, and the cost of each graph break.

NUM_ROUNDS interleaved rounds run the variants of a phase in one process, and compile each again. Drift of the machine
hits all variants alike. Differences and ratios are taken within a round; their intervals are over rounds.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from trainkit.compiler import graphs
from trainkit.compiler.backends import generates_code
from trainkit.compiler.errors import first_line
from trainkit.config.schema import CompileConfig, Mode
from trainkit.diagnosis.findings import Finding, Phase
from trainkit.diagnosis.frozen_lines import NotConstantError, frozen
from trainkit.diagnosis.profiling import profile_round
from trainkit.diagnosis.trial import Subject, Trial, describe_failure, run_eager_steps
from trainkit.metrics.memory import peak_reserved_bytes
from trainkit.stats import Estimate, estimate

logger = logging.getLogger(__name__)
NUM_ROUNDS, NUM_TIMED = 6, 20  # rounds; steps of each round


@dataclass
class Variant:
    """A program that makes a phase's steps: the network compiled in a certain way, with or without a frozen line.

    `rounds_ms` has the median step of each round, `failed` the reason why there are no more. `peak_reserved_bytes` is
    the memory that the allocator reserves for a step, of the last round.
    """

    name: str
    compile_config: CompileConfig
    frozen_line: tuple[str, int] | None = None
    rounds_ms: list[float] = field(default_factory=list)
    failed: str | None = None
    peak_reserved_bytes: int | None = None

    def run_round(self, subject: Subject, phase: str) -> None:
        """Time some steps, or store why that failed."""
        if self.failed is not None:
            return
        if self.frozen_line is None:
            freezing: Any = nullcontext()
        else:
            file, line = self.frozen_line
            freezing = frozen(file, line, lambda: run_eager_steps(subject, phase, self.compile_config))
        try:
            with freezing:
                self._time(subject, phase)
        except NotConstantError as error:
            self.failed = str(error)
        except Exception as error:  # of any kind: the program without the line is ours, not the user's
            self.failed = f"without it: {first_line(error)}"

    def _time(self, subject: Subject, phase: str) -> None:
        try:
            with Trial(subject, phase, self.compile_config).running() as trial:
                trial.warm_up()
                self.rounds_ms.append(median(trial.step_ms(NUM_TIMED)))
                self.peak_reserved_bytes = peak_reserved_bytes(trial.first_step, subject.device)
        except Exception as error:
            when = "when it was timed" if self.frozen_line is None else "without it"
            self.failed = f"{when}: {describe_failure(subject, phase, self.compile_config, error)}"


def measure_phase(subject: Subject, phase: Phase, breaks: Sequence[Finding]) -> tuple[Phase, list[Finding]]:
    """The phase with step times, gain and shares, and its graph breaks with their costs.

    There is no gain, and no step in eager, with a backend that generates no code: its steps are those of eager.

    The cost of a break is the median step of the network as it is, less that of the same network with this one line
    frozen, so that the graph does not break there. All other breaks stay. So the cost contains the line's own work, its
    waiting for the device, the break, and the fusion lost over it: the most that a free remedy can gain. There is no
    cost for lines whose result is a tensor.
    """
    config = subject.config.compile
    compiled = Variant("as compiled", config)
    eager = Variant("in eager", replace(config, mode=Mode["eager"]))
    without = _variants_without(breaks, config)
    backends = [config.backend, *[part.backend for part in config.parts]]
    has_gain = any(generates_code(backend) for backend in backends)
    if has_gain:
        _run_rounds(subject, phase.name, [compiled, eager, *without])
    else:
        _run_rounds(subject, phase.name, [compiled, *without])
    failed = compiled.failed or eager.failed
    if failed:
        unmeasured = [replace(finding, cost_unknown="the phase failed") for finding in breaks]
        return replace(phase, error=failed), unmeasured
    phase = replace(
        phase,
        step_time_ms=estimate(compiled.rounds_ms),
        peak_reserved_bytes=compiled.peak_reserved_bytes,
        eager_peak_reserved_bytes=eager.peak_reserved_bytes,
    )
    if has_gain:
        eager_step_time_ms, gain = estimate(eager.rounds_ms), estimate(_gains(eager, compiled))
        phase = replace(phase, eager_step_time_ms=eager_step_time_ms, gain=gain)
    logger.info("%s: profiling the compiled share of the step", phase.name)
    phase = _with_shares(phase, Trial(subject, phase.name, graphs.watched(config)), compiled.rounds_ms)
    findings = []
    for finding, variant in zip(breaks, without, strict=True):
        findings.append(_with_cost(finding, compiled, variant))
    return phase, findings


def _variants_without(breaks: Sequence[Finding], config: CompileConfig) -> list[Variant]:
    """For each break, the network without it."""
    variants = []
    for number, finding in enumerate(breaks, 1):
        name = f"without break {number} of {len(breaks)} ({finding.file}:{finding.line})"
        variants.append(Variant(name, config, (str(finding.file), finding.line or 0)))
    return variants


def _run_rounds(subject: Subject, phase: str, variants: list[Variant]) -> None:
    for number in range(NUM_ROUNDS):
        logger.info("%s: measuring, round %d of %d", phase, number + 1, NUM_ROUNDS)
        for variant in variants:
            if number == 0:  # the longest round; the others are like it
                logger.info("%s: measuring %s", phase, variant.name)
            variant.run_round(subject, phase)
        variants = variants[::-1]


def _gains(eager: Variant, compiled: Variant) -> list[float]:
    rounds = zip(eager.rounds_ms, compiled.rounds_ms, strict=True)
    return [eager_ms / compiled_ms for eager_ms, compiled_ms in rounds]


def _with_cost(finding: Finding, compiled: Variant, without: Variant) -> Finding:
    if without.failed is not None:
        return replace(finding, cost_unknown=without.failed)
    rounds = zip(compiled.rounds_ms, without.rounds_ms, strict=True)
    costs_ms = [with_ms - without_ms for with_ms, without_ms in rounds]
    return replace(finding, cost_ms=estimate(costs_ms), peak_reserved_bytes_without=without.peak_reserved_bytes)


def _with_shares(phase: Phase, trial: Trial, rounds_ms: list[float]) -> Phase:
    """The phase with shares by torch's profiler, over as many rounds of one compiled program.

    On a CPU, a share is the time between entering a graph and leaving it, over the time of the steps. On a GPU, it is
    the time of the kernels launched in between, over that of all kernels; the kernels' time over the timed rounds is
    the share that the GPU is busy. The profiler takes time itself, more for many small operations than for few large
    ones, so eager code looks larger than it is. A kernel's own time is exact.
    """
    rounds = []
    with trial.running():
        trial.warm_up()
        for _ in range(NUM_ROUNDS):
            profiled = profile_round(trial)
            if profiled is None:
                return phase
            rounds.append(profiled)
    busy = []
    for profiled, step_ms in zip(rounds, rounds_ms, strict=True):
        if profiled.kernels_ms is not None:
            busy.append(profiled.kernels_ms / step_ms)
    return replace(
        phase,
        compiled_frac=_estimate_share([profiled.compiled_frac for profiled in rounds]),
        optimizer_frac=_estimate_share([profiled.optimizer_frac for profiled in rounds]),
        device_busy_frac=_estimate_share(busy),
        num_kernels=rounds[-1].num_kernels,
        num_launches=rounds[-1].num_launches,
    )


def _estimate_share(rounds: list[float]) -> Estimate | None:
    if not rounds:
        return None
    return estimate([min(share, 1.0) for share in rounds])
