"""Diagnose a network: which lines keep torch.compile from its best, the remedies, and the costs.

Forward (evaluation without gradient) and training (forward, backward, optimizer) run over the same first batches of the
training data, on copies, in one process on one device.
"""

import logging
from dataclasses import replace

from trainkit.compiler import facts
from trainkit.compiler.graph_lines import Operation, capturing, line_sizes, unrolled_loops
from trainkit.config.errors import ConfigError
from trainkit.diagnosis.break_costs import measure_phase
from trainkit.diagnosis.findings import Diagnosis, Finding, Phase, merge_findings
from trainkit.diagnosis.phase_findings import Observed, find_causes, loop_finding
from trainkit.diagnosis.remedies.unrolled_loops import MANY
from trainkit.diagnosis.rng import EagerDraws, record_draws
from trainkit.diagnosis.trial import NUM_BATCHES, PHASES, Subject, Trial, describe_failure
from trainkit.metrics.environment import machine_columns

logger = logging.getLogger(__name__)


def diagnose(subject: Subject) -> Diagnosis:
    """The findings of both phases, with all measurements."""
    return measure(subject, examine(subject))


def examine(subject: Subject) -> Diagnosis:
    """The findings of both phases, nothing timed. Raises ConfigError for a dimension that cannot be marked dynamic."""
    config = subject.config
    phases = []
    findings = []
    for name in PHASES:
        phase, phase_findings = _examine_phase(subject, name)
        phases.append(phase)
        findings += phase_findings
    return Diagnosis(
        model=config.job.model,
        data=config.job.data,
        batch_size=config.data.get("batch_size"),
        compile_mode=config.compile.mode,
        precision=config.amp.precision,
        overrides=list(config.job.overrides),
        machine=machine_columns(subject.device),
        phases=phases,
        findings=merge_findings(findings),
    )


def measure(subject: Subject, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with step times, gain and shares of each phase, and the cost of each graph break.

    The cost is that of a training step, or of a forward step for a break that only forward has.
    """
    findings = list(diagnosis.findings)
    phases: list[Phase] = []
    for phase in reversed(diagnosis.phases):
        if phase.error is None:
            breaks = _unmeasured_breaks(findings, phase.name)
            phase, measured = measure_phase(subject, phase, list(breaks.values()))
            for number, finding in zip(breaks, measured, strict=True):
                findings[number] = finding
        phases.insert(0, phase)
    return replace(diagnosis, phases=phases, findings=findings)


def _unmeasured_breaks(findings: list[Finding], phase: str) -> dict[int, Finding]:
    """The phase's graph breaks that have a line, and no cost yet, by their index."""
    breaks = {}
    for number, finding in enumerate(findings):
        is_break = finding.kind == "graph break" and finding.file and finding.line
        is_measured = finding.cost_ms is not None or finding.cost_unknown is not None
        if is_break and phase in finding.phases and not is_measured:
            breaks[number] = finding
    return breaks


def _examine_phase(subject: Subject, name: str) -> tuple[Phase, list[Finding]]:
    """The phase's steps over all batches, and the findings up to their end or failure."""
    config = subject.config.compile
    draws = _try_record_draws(subject, name)
    trial = Trial(subject, name, config)
    logger.info("%s: compiling %d steps to find graph breaks and recompiles", name, len(trial.batches))
    with trial.running(config.cache):
        error = _run_steps(trial)
        compile_facts, recompiles = trial.compiler.facts(), trial.compiler.recompiles()
        stages_s = facts.stages_s()
        repeated_draws = []
        if draws is not None and error is None:
            repeated_draws = draws.repeated_in(trial)
    observed = Observed(trial.batches, compile_facts, recompiles, repeated_draws)
    findings = [replace(finding, phases=[name]) for finding in find_causes(config, observed)]
    phase = Phase(
        name,
        compile_facts.num_graphs,
        compile_facts.recompile_limit_hit,
        graph_sizes=compile_facts.graph_sizes,
        tuned_kernels=compile_facts.tuned_kernels,
        compile_s=_first_compiles_s(stages_s, compile_facts.recompile_times_s),
        cache_found=compile_facts.cache_found,
    )
    if error is not None:
        phase = replace(phase, error=describe_failure(subject, name, config, error, NUM_BATCHES))
        return phase, findings
    operations = _captured_operations(subject, name)
    for body in unrolled_loops(operations, MANY):
        findings.append(replace(loop_finding(body, len(operations)), phases=[name]))
    return replace(phase, line_sizes=line_sizes(operations)), findings


def _first_compiles_s(stages_s: dict[str, float] | None, recompile_times_s: list[float] | None) -> float | None:
    """Seconds of the compiles that were no recompiles."""
    if stages_s is None or recompile_times_s is None:
        return None
    return max(sum(stages_s.values()) - sum(recompile_times_s), 0.0)


def _captured_operations(subject: Subject, name: str) -> list[Operation]:
    """The operations of the graphs that Dynamo captures in the phase's first step."""
    operations: list[Operation] = []
    with Trial(subject, name, capturing(subject.config.compile, operations)).running() as trial:
        trial.first_step()
    return operations


def _try_record_draws(subject: Subject, phase: str) -> EagerDraws | None:
    try:
        return record_draws(subject, phase)
    except Exception:  # of any kind: the phase's own steps raise it again, and report it
        return None


def _run_steps(trial: Trial) -> Exception | None:
    """Make a step on each batch; the error of the step that failed."""
    try:
        for batch in trial.batches:
            trial.step(batch)
    except ConfigError:  # a marked dimension that the network fixes: the user has to correct it
        raise
    except Exception as error:  # of any other kind: the findings before it are kept
        return error
    return None
