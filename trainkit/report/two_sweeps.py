"""Two sweeps side by side: each setting that both measured, in the first and in the second."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainkit.analysis.regressions import Change, find_changes
from trainkit.formatting import decimals, fixed, size
from trainkit.report.columns import Cell
from trainkit.report.figures import range_text, ratio_text
from trainkit.report.labels import CHANGE_NOTE, work_label
from trainkit.report.verdicts import change_verdict
from trainkit.results.row import Row


@dataclass(frozen=True)
class TwoSweeps:
    """The names of two sweeps, a line of cells for each setting of both, how to read them, and the settings of one
    alone."""

    names: tuple[str, str]
    lines: list[tuple[str, list[Cell]]]
    note: str
    only: list[str]

    @property
    def heads(self) -> list[str]:
        first, second = self.names
        return ["setting", f"step ms, {first}", f"step ms, {second}", "second over first", "memory", "verdict"]


def two_sweeps(names: tuple[str, str], first: Sequence[Row], second: Sequence[Row]) -> TwoSweeps:
    """The second sweep against the first, by setting. Rows that a comparison drops are left out."""
    changes = find_changes(second, first)
    lines = [(f"{change.label}, {work_label(change)}", _cells(change)) for change in changes.changes]
    only = []
    for label in changes.missing:
        only.append(f"{label}: only in {names[0]}")
    for label in changes.added:
        only.append(f"{label}: only in {names[1]}")
    note = CHANGE_NOTE if lines else ""
    return TwoSweeps(names, lines, note, only)


def _cells(change: Change) -> list[Cell]:
    now_ms, before_ms = change.step_time_ms
    digits = decimals([now_ms.median, before_ms.median], 4)
    memory = "-"
    if change.peak_allocated_bytes is not None:
        now, before = change.peak_allocated_bytes
        memory = f"{size(int(before))}, {size(int(now))}"
    return [
        Cell(fixed(before_ms.median, digits), range_text(before_ms, digits)),
        Cell(fixed(now_ms.median, digits), range_text(now_ms, digits)),
        Cell(ratio_text(change.step_time)),
        Cell(memory),
        Cell(change_verdict(change)),
    ]
