"""Findings of a phase: its graph breaks, recompiles, skipped CUDA graphs and repeated random numbers, with remedies."""

import re
from dataclasses import dataclass, replace

from trainkit.compiler.recompiles import Recompile
from trainkit.compiler.source import SourceLocation, is_user_code, source_location
from trainkit.config.schema import CompileConfig
from trainkit.diagnosis.findings import SKIP, UNROLLED_LOOP, Finding
from trainkit.diagnosis.remedies.cuda_graphs import remedy_for_skip
from trainkit.diagnosis.remedies.graph_breaks import BELOW_BREAK, RANDOM, REPEATED_RANDOM, remedy_for_break
from trainkit.diagnosis.remedies.matching import Remedy
from trainkit.diagnosis.remedies.recompiles import AFTER_BREAK, BY_BATCH_SHAPE, remedy_for_recompile
from trainkit.diagnosis.remedies.unrolled_loops import remedy_for_loop
from trainkit.inputs import Batch, tensors_of
from trainkit.results.effective import CompileFacts
from trainkit.results.facts import GraphBreak, LineSize


@dataclass(frozen=True)
class Observed:
    """The batches of a phase, and how torch compiled its steps; `recompiles` in the order of the facts' lists."""

    batches: list[Batch]
    facts: CompileFacts
    recompiles: list[Recompile]
    repeated_draws: list[SourceLocation]


def find_causes(config: CompileConfig, observed: Observed) -> list[Finding]:
    """The findings of a phase, one for each graph break, recompile and skip."""
    findings = [_repeated_draw_finding(location) for location in observed.repeated_draws]
    drawing_lines = {(location.file, location.line) for location in observed.repeated_draws}
    for graph_break in observed.facts.graph_breaks or []:
        finding = _break_finding(graph_break)
        if (finding.file, finding.line) in drawing_lines:  # torch takes the number for a tensor
            finding = _with_remedy(finding, RANDOM)
        findings.append(finding)
    findings += _recompile_findings(config, observed)
    findings = _with_library_code_below_breaks(findings)
    for reason in _skip_reasons(config, observed.facts):
        findings.append(_skip_finding(reason))
    return findings


def loop_finding(body: LineSize, num_operations: int) -> Finding:
    """The finding of an unrolled loop in graphs of so many operations."""
    location = SourceLocation(body.file, body.line, body.code)
    finding = _finding_with(UNROLLED_LOOP, remedy_for_loop(body), "", location)
    return replace(finding, num_repeats=body.num_repeats, operations_frac=body.num_operations / num_operations)


def _finding_with(kind: str, remedy: Remedy, reason: str, location: SourceLocation) -> Finding:
    finding = Finding(kind, "", "", "", reason, location.file, location.line, location.code)
    return _with_remedy(finding, remedy)


def _with_remedy(finding: Finding, remedy: Remedy) -> Finding:
    return replace(finding, cause=remedy.cause, why=remedy.why, remedy=remedy.fix)


def _repeated_draw_finding(location: SourceLocation) -> Finding:
    reason = "the generator's state changes in each eager step and stays the same in a compiled step"
    return _finding_with("wrong result", REPEATED_RANDOM, reason, location)


def _break_finding(graph_break: GraphBreak) -> Finding:
    reason = f"{graph_break.reason} {graph_break.explanation}".strip()
    location = SourceLocation(graph_break.file, graph_break.line, graph_break.code)
    finding = _finding_with("graph break", remedy_for_break(graph_break), reason, location)
    return replace(finding, uncompiled=graph_break.uncompiled, uncompiled_after=graph_break.uncompiled_after)


def _recompile_findings(config: CompileConfig, observed: Observed) -> list[Finding]:
    shapes = observed.facts.recompile_shapes or []
    times_s = observed.facts.recompile_times_s or []
    shapes_differ = _shapes_differ(observed.batches)
    findings = []
    for recompile, shape, time_s in zip(observed.recompiles, shapes, times_s, strict=True):
        remedy = remedy_for_recompile(recompile.reason, config.dynamic)
        finding = _recompile_finding(recompile, remedy, time_s)
        if shape and shapes_differ and remedy in BY_BATCH_SHAPE:
            finding = replace(finding, recompile_shapes=[shape])
        findings.append(finding)
    return findings


def _shapes_differ(batches: list[Batch]) -> bool:
    shapes = set()
    for batch in batches:
        shapes.add(tuple(tensor.shape for tensor in tensors_of(batch)))
    return len(shapes) > 1


def _recompile_finding(recompile: Recompile, remedy: Remedy, time_s: float) -> Finding:
    location = recompile.location
    if remedy is AFTER_BREAK and recompile.broken_at is not None:
        location = recompile.broken_at
    finding = _finding_with("recompile", remedy, recompile.reason, location)
    return replace(finding, num_recompiles=1, recompile_s=time_s)


def _with_library_code_below_breaks(findings: list[Finding]) -> list[Finding]:
    """If a line of the user's breaks a graph, torch compiles the library code that it calls: its findings follow."""
    broken_files = {finding.file for finding in findings if finding.kind == "graph break"}
    if not any(file and is_user_code(file) for file in broken_files):
        return findings
    explained = []
    for finding in findings:
        if finding.file and not is_user_code(finding.file):
            finding = _with_remedy(finding, BELOW_BREAK)
        explained.append(finding)
    return explained


def _skip_finding(reason: str) -> Finding:
    quoted = re.findall(r'File "([^"]+)", line (\d+)', reason)
    location = SourceLocation()
    if quoted:
        file, line = quoted[-1]
        location = source_location(file, int(line))
    return _finding_with(SKIP, remedy_for_skip(reason), reason, location)


def _skip_reasons(config: CompileConfig, facts: CompileFacts) -> list[str]:
    """Torch's reasons for skipped CUDA graphs; if it gives none, the reason for the effective mode."""
    if not facts.num_cudagraph_skips and facts.effective_mode == config.mode:
        return []
    if facts.cudagraph_skips:
        return facts.cudagraph_skips
    reason = facts.effective_mode_reason or ""
    return [reason] if "CUDA graphs" in reason else []
