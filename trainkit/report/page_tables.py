"""The tables of a group on the page, below its plots: calls, the compiler, numerics, memory, environment."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from trainkit.analysis.candidates import Candidate, values_of
from trainkit.analysis.comparison import Group
from trainkit.diagnosis.remedies.matching import Remedy
from trainkit.formatting import fixed, percent, scientific, seconds, size, time_decimals
from trainkit.report.cascades import expected_ms, stage_label
from trainkit.report.columns import Cell
from trainkit.report.compiler_facts import Cause, graph_break_causes, recompile_causes, skip_causes
from trainkit.results.columns import OverRepeats, Section, columns, headings
from trainkit.results.facts import ShapeLatency, Stage
from trainkit.results.row import Row

LATENCY_TITLES = ["calls", "p50 ms", "p90 ms", "p99 ms"]


@dataclass(frozen=True)
class SettingTable:
    """A line of cells for each setting, by its label."""

    title: str
    heads: list[str]
    lines: list[tuple[str, list[Cell]]]


@dataclass(frozen=True)
class FoundCause:
    """A cause, the settings in which it was found, and the most seconds that it took in a run."""

    reason: str
    remedy: Remedy
    labels: list[str]
    everywhere: bool
    cost: str

    @property
    def first_line(self) -> str:
        return self.reason.strip().partition("\n")[0]


@dataclass(frozen=True)
class CauseTable:
    """Each distinct cause once; `timed` if their seconds are known."""

    title: str
    causes: list[FoundCause]
    timed: bool


@dataclass(frozen=True)
class GroupFacts:
    """The tables of a group; a table without lines is not shown."""

    latencies: SettingTable
    stages: SettingTable
    compiled: SettingTable
    causes: list[CauseTable]
    checks: SettingTable
    programs: SettingTable
    peaks: SettingTable
    environment: dict[str, str]


def group_facts(group: Group) -> GroupFacts:
    candidates, compiled = group.candidates, group.compiled
    checked = []
    for candidate in candidates:
        if _values_text(candidate.rows, "check_passed") or _values_text(candidate.rows, "check_reason"):
            checked.append(candidate)
    return GroupFacts(
        latencies=_latency_table(candidates),
        stages=_stage_table(candidates),
        compiled=_section_table(Section.COMPILER, compiled),
        causes=[
            _cause_table("Graph breaks", compiled, graph_break_causes),
            _cause_table("Recompiles", compiled, recompile_causes, timed=True),
            _cause_table("CUDA graphs skipped", compiled, skip_causes),
        ],
        checks=_section_table(Section.CHECK, checked),
        programs=_section_table(Section.PACKAGE, candidates),
        peaks=_section_table(Section.MEMORY, candidates),
        environment=_environment_texts(group),
    )


def _latency_table(candidates: Iterable[Candidate]) -> SettingTable:
    """The latency of a call by the shape of its inputs, of the first repeat of each setting."""
    lines = []
    for candidate in candidates:
        for latency in candidate.rows[0].latency_by_shape or ():
            shape = " x ".join(str(dim) for dim in latency.shape)
            lines.append((candidate.label, [Cell(shape), *_latency_cells(latency)]))
    return SettingTable("Latency by shape of the inputs", ["shape", *LATENCY_TITLES], lines)


def _stage_table(candidates: Iterable[Candidate]) -> SettingTable:
    """The share and the latency of each stage of a cascade, of the first repeat of each setting."""
    lines = []
    for candidate in candidates:
        row = candidate.rows[0]
        for stage in row.chain or ():
            cells = [
                Cell(stage_label(stage, row)),
                Cell(stage.effective_mode or "-"),
                Cell(fixed(stage.num_graphs, 0)),
                Cell(expected_ms(stage)),
                Cell(fixed(stage.accuracy, 3)),
                Cell(percent(stage.call_frac)),
            ]
            lines.append((candidate.label, cells + _latency_cells(stage)))
    titles = ["stage", "effective", "graphs", "expected ms", "accuracy", "share", *LATENCY_TITLES]
    return SettingTable("Calls served by each stage", titles, lines)


def _latency_cells(measured: ShapeLatency | Stage) -> list[Cell]:
    times_ms = [measured.time_ms_p50, measured.time_ms_p90, measured.time_ms_p99]
    digits = time_decimals(times_ms, 4)
    cells = [Cell(fixed(measured.num_calls, 0))]
    for time_ms in times_ms:
        cells.append(Cell(fixed(time_ms, digits)))
    return cells


def _section_table(section: Section, candidates: Sequence[Candidate]) -> SettingTable:
    """The columns that any row knows. If repeats differ, their values stand side by side."""
    heads = []
    lines: list[tuple[str, list[Cell]]] = [(candidate.label, []) for candidate in candidates]
    for column, head in headings(Row, section).items():
        texts = [_values_text(candidate.rows, column) for candidate in candidates]
        if not any(texts):
            continue
        heads.append(head)
        for (_, cells), text in zip(lines, texts, strict=True):
            cells.append(Cell(text or "-"))
    if not heads:
        return SettingTable(section, [], [])
    return SettingTable(section, heads, lines)


def _cause_table(
    title: str, candidates: Sequence[Candidate], causes_of: Callable[[Row], list[Cause]], timed: bool = False
) -> CauseTable:
    labels: dict[tuple[str, Remedy], list[str]] = {}
    times_s: dict[tuple[str, Remedy], float] = {}
    for candidate in candidates:
        for row in candidate.rows:
            spent_s: dict[tuple[str, Remedy], float] = {}
            for cause in causes_of(row):
                key = (cause.reason, cause.remedy)
                spent_s[key] = spent_s.get(key, 0.0) + (cause.time_s or 0.0)
            for key, time_s in spent_s.items():
                times_s[key] = max(times_s.get(key, 0.0), time_s)
                settings = labels.setdefault(key, [])
                if candidate.label not in settings:
                    settings.append(candidate.label)
    causes = []
    for (reason, remedy), settings in labels.items():
        everywhere = len(candidates) > 1 and len(settings) == len(candidates)
        causes.append(FoundCause(reason, remedy, settings, everywhere, seconds(times_s[reason, remedy] or None)))
    return CauseTable(title, causes, timed)


def _environment_texts(group: Group) -> dict[str, str]:
    rows, texts = group.rows, {}
    for column, title in headings(Row, Section.ENVIRONMENT).items():
        text = _values_text(rows, column)
        if text:
            texts[title] = text
    return texts


def _values_text(rows: Iterable[Row], column: str) -> str:
    """The distinct values of a column, or the median or largest of measured ones; "" if no row knows it."""
    values = [value for value in values_of(rows, column) if value != ""]
    described = columns(Row)[column]
    if values and described.over_repeats is OverRepeats.LARGEST:
        values = [max(values)]
    if values and described.over_repeats is OverRepeats.MEDIAN:
        values = [median(values)]
    texts = [_value_text(described.unit, value) for value in values]
    return ", ".join(dict.fromkeys(texts))


def _value_text(unit: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "bytes":
        return size(value)
    if unit == "s":
        return seconds(value)
    if unit == "relative":
        return scientific(value)
    if isinstance(value, int):
        return fixed(value, 0)
    if isinstance(value, float):  # a fraction, the only one that is shown as it is
        return percent(value)
    return str(value)
