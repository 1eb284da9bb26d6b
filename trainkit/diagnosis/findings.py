"""The findings of a diagnosis as data, with its phases and stages, written and read as JSON. No torch."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trainkit.results.facts import GraphSize, LineSize, TunedKernel
from trainkit.results.typed import parse_text, read_bounded
from trainkit.stats import Estimate

SKIP = "CUDA graphs skipped"
UNROLLED_LOOP = "unrolled loop"
FINDING_KINDS = ("wrong result", "graph break", "recompile", SKIP, UNROLLED_LOOP)


@dataclass(frozen=True)
class Finding:
    """A source line that keeps torch.compile from its best, or makes it wrong, with the remedy.

    `reason` is torch's; `cause`, `why` and `remedy` are those of remedies/. `uncompiled` is a function that runs
    without torch.compile as a whole because of this line, `uncompiled_after` one that does so from this line on; the
    code after it was not examined. `num_recompiles`, `recompile_s` (compile seconds) and `recompile_shapes` (of the
    batches that caused them, if their shapes differ and the cause is a size) are of all phases.
    `cost_ms` is the cost of the line in a step of the last of its phases, `cost_unknown` the reason why there is none;
    see break_costs.py. `peak_reserved_bytes_without` is that of the same phase without the line.
    `num_repeats` is how often the graphs of the last of its phases have the line of an unrolled loop, and
    `operations_frac` the share of their operations that it makes.
    """

    kind: str
    cause: str
    why: str
    remedy: str
    reason: str
    file: str | None = None
    line: int | None = None
    code: str = ""
    uncompiled: str | None = None
    uncompiled_after: str | None = None
    phases: list[str] = field(default_factory=list)
    num_recompiles: int = 0
    recompile_s: float | None = None
    recompile_shapes: list[list[list[int]]] = field(default_factory=list)
    cost_ms: Estimate | None = None
    cost_unknown: str | None = None
    peak_reserved_bytes_without: int | None = None
    num_repeats: int = 0
    operations_frac: float | None = None


@dataclass(frozen=True)
class Phase:
    """Forward (eval mode, no gradient) or training (forward, backward, optimizer), over the same batches.

    None is not measured. Step times are of steps on one batch in which nothing compiled. `gain` is the eager step time
    over the compiled one. `compiled_frac` is the share of the step in compiled graphs, `optimizer_frac` that of the
    optimizer, which is never compiled: on a CPU shares of the step's time, on a GPU of its kernels' time.
    `device_busy_frac` is the share of a compiled step in which a GPU runs kernels; in the rest it waits for the host.
    `num_kernels` is the number of kernels of a compiled step on a GPU, `num_launches` that of the host's calls that
    start them (one for a CUDA graph); the peaks are the memory that the allocator reserves on a GPU.
    `compile_s` are the seconds of its compiles without recompiles, and `cache_found` says whether they found their
    graphs in the cache (cold, warm or mixed). `line_sizes` are the lines that make operations of the graphs as Dynamo
    captures them for the first batch, the largest first.
    `error` is the reason why the phase could not run.
    """

    name: str
    num_graphs: int | None = None
    recompile_limit_hit: bool | None = None
    step_time_ms: Estimate | None = None
    eager_step_time_ms: Estimate | None = None
    gain: Estimate | None = None
    compiled_frac: Estimate | None = None
    optimizer_frac: Estimate | None = None
    device_busy_frac: Estimate | None = None
    graph_sizes: list[GraphSize] | None = None
    tuned_kernels: list[TunedKernel] | None = None
    num_kernels: int | None = None
    num_launches: int | None = None
    peak_reserved_bytes: int | None = None
    eager_peak_reserved_bytes: int | None = None
    compile_s: float | None = None
    cache_found: str | None = None
    line_sizes: list[LineSize] | None = None
    error: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """One network on one data set in one mode. `stages` are seconds by backend, then by stage of a compile."""

    model: str
    data: str
    batch_size: int | None
    compile_mode: str
    precision: str
    overrides: list[str]
    machine: dict[str, Any]
    phases: list[Phase]
    findings: list[Finding]
    stages: dict[str, dict[str, float]] | None = None


def merge_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Each source line and cause once, with all its phases; sorted by kind, then in the order they came in."""
    merged: dict[tuple[Any, ...], Finding] = {}
    for finding in _locate_skips(list(findings)):
        key = (finding.kind, finding.file, finding.line, finding.cause)
        if key in merged:
            merged[key] = _merge(merged[key], finding)
        else:
            merged[key] = finding
    return sorted(merged.values(), key=lambda finding: FINDING_KINDS.index(finding.kind))


def _merge(first: Finding, second: Finding) -> Finding:
    shapes = list(first.recompile_shapes)
    for shape in second.recompile_shapes:
        if shape not in shapes:
            shapes.append(shape)
    return replace(
        first,
        phases=list(dict.fromkeys(first.phases + second.phases)),
        uncompiled=first.uncompiled or second.uncompiled,
        uncompiled_after=first.uncompiled_after or second.uncompiled_after,
        num_recompiles=first.num_recompiles + second.num_recompiles,
        num_repeats=second.num_repeats,
        operations_frac=second.operations_frac,
        recompile_s=_sum_known(first.recompile_s, second.recompile_s),
        recompile_shapes=shapes,
    )


def _sum_known(first: float | None, second: float | None) -> float | None:
    if first is None:
        return second
    if second is None:
        return first
    return first + second


def _locate_skips(findings: list[Finding]) -> list[Finding]:
    """Give a CUDA-graph skip without a line (torch gives none in training) the line of a similar one, if there is one.

    Similar are skips of the same cause and, if torch counts them ("2 instances"), of as many tensors. That they are of
    the same line is assumed: if not, the line of the skip in training is not reported.
    """
    located: dict[tuple[str, ...], Finding] = {}
    for finding in findings:
        if finding.kind == SKIP and finding.file:
            located.setdefault(_likeness(finding), finding)
    placed = []
    for finding in findings:
        if finding.kind == SKIP and finding.file is None:
            similar = located.get(_likeness(finding), finding)
            finding = replace(similar, phases=finding.phases)
        placed.append(finding)
    return placed


def _likeness(skip: Finding) -> tuple[str, ...]:
    counts = re.findall(r"\((\d+) instances\)", skip.reason)
    return skip.cause, *counts


def write_diagnosis(path: Path | str, diagnosis: Diagnosis) -> None:
    Path(path).write_text(json.dumps(asdict(diagnosis), indent=2) + "\n", encoding="utf-8")


def read_diagnosis(path: Path | str) -> Diagnosis:
    """The diagnosis in a file, without fields of a newer schema. Raises ValueError, one line that names the file."""
    try:
        diagnosis: Diagnosis = parse_text(Diagnosis, read_bounded(Path(path)), "it")
    except ValueError as error:
        complaint = f"{path} is not a diagnosis: {error}"
        raise ValueError(" ".join(complaint.split())) from error
    return diagnosis


def read_diagnoses(folder: Path | str, pattern: str = "diagnosis*.json") -> tuple[list[Diagnosis], list[str]]:
    """The diagnoses in the files of a folder that match a pattern, and a complaint for each file that is none."""
    diagnoses = []
    complaints = []
    for path in sorted(Path(folder).glob(pattern)):
        try:
            diagnoses.append(read_diagnosis(path))
        except ValueError as error:
            complaints.append(str(error))
    return diagnoses, complaints
