"""Two sweeps side by side: each setting that both measured, in the first and in the second."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainkit.analysis.regressions import Change, find_changes
from trainkit.formatting import size
from trainkit.report.columns import Cell, time_cells
from trainkit.report.figures import ratio_text
from trainkit.report.labels import CHANGE_NOTE, work_label
from trainkit.report.verdicts import change_verdict
from trainkit.results.row import Row


@dataclass(frozen=True)
class TwoSweeps:
    """The names of two sweeps, a line of cells for each setting of both, and the settings of one alone."""

    names: tuple[str, str]
    lines: list[tuple[str, list[Cell]]]
    only: list[str]

    @property
    def note(self) -> str:
        """How to read the cells."""
        return CHANGE_NOTE if self.lines else ""

    @property
    def heads(self) -> list[str]:
        first, second = self.names
        return ["setting", f"step ms, {first}", f"step ms, {second}", "second over first", "memory", "verdict"]


def two_sweeps(names: tuple[str, str], first: Sequence[Row], second: Sequence[Row]) -> TwoSweeps:
    """The second sweep against the first, by setting. Rows that a comparison drops are left out."""
    changes = find_changes(second, first)
    lines = [(f"{change.label}, {work_label(change)}", _cells(change)) for change in changes.changes]
    only = [f"failed in {names[1]}: {label}" for label in changes.failed]
    for label in changes.missing:
        only.append(f"{label}: only in {names[0]}")
    for label in changes.added:
        only.append(f"{label}: only in {names[1]}")
    return TwoSweeps(names, lines, only)


def _cells(change: Change) -> list[Cell]:
    now_ms, before_ms = time_cells(change.step_time_ms)
    memory = "-"
    if change.peak_allocated_bytes is not None:
        now, before = change.peak_allocated_bytes
        memory = f"{size(int(before))}, {size(int(now))}"
    return [
        before_ms,
        now_ms,
        Cell(ratio_text(change.step_time)),
        Cell(memory),
        Cell(change_verdict(change)),
    ]
