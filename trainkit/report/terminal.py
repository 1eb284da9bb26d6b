"""A comparison, and the changes against a baseline, as tables of the terminal.

Names, reasons and errors come from users and logs: they are printed as they are, never read as markup.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainkit.analysis.comparison import Comparison
from trainkit.analysis.dropping import Dropped, step_times_ms
from trainkit.analysis.regressions import Change, Changes, Incomparable
from trainkit.analysis.scaling import Scaling
from trainkit.formatting import clean, fixed, short, size, time_decimals
from trainkit.report.columns import Cell, TableColumn, comparison_columns, time_cells
from trainkit.report.figures import factor_text, ratio_text
from trainkit.report.labels import (
    CHANGE_NOTE,
    ENOUGH_REPEATS,
    dropped_title,
    headings,
    schema_changes,
    versioned_run_counts,
    work_label,
)
from trainkit.report.notes import comparison_notes
from trainkit.report.recommendations import recommendation
from trainkit.report.scaling import scaling_columns, scaling_notes, scaling_sentences, scaling_title
from trainkit.report.throughput import throughput_lines
from trainkit.report.verdicts import change_verdict, verdicts

MEASURE_AGAIN = "Measure the older runs again, with this version of trainkit."
TOO_FEW_RUNS = (
    "Of one run nobody can tell whether a step got slower, so this is not checked: measure both sides with "
    f"hydra.launcher.repeats={ENOUGH_REPEATS}."
)
MIN_LABEL_WIDTH, LABEL_WIDTH = len("max-autotune-no-"), len("max-autotune-no-cudagraphs")


class Unpadded(Console):
    """Prints no blanks at the ends of lines, with which rich fills cells up."""

    def print(self, *objects: Any, **options: Any) -> None:
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE))
        self.file.flush()


def terminal() -> Console:
    """Standard output; wide enough for a table's columns if it is a file or a pipe."""
    console = Console()
    if console.is_terminal:
        return console
    return Unpadded(width=120)


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print a table and verdicts for each group, fastest setting first; then scalings, notes and dropped rows."""
    console = console or terminal()
    groups = comparison.groups
    if not groups:
        console.print(Text("Nothing to compare: no run was measured."))
    notes = comparison_notes(groups)
    for group, heading, own_notes in zip(groups, headings(groups), notes.by_group, strict=True):
        console.print(Text(heading.name, style="bold"))
        for detail in heading.details:
            console.print(Text(detail, style="dim"))
        labels = [candidate.label for candidate in group.candidates]
        console.print(_settings_table(labels, comparison_columns(group.candidates), console.width), crop=False)
        console.print(Text(recommendation(group), style="bold"))
        for sentence in verdicts(group):
            console.print(indented(Text(sentence)))
        for note in own_notes:
            console.print(Text(note, style="yellow"))
        console.print()
    for scaling in comparison.scalings:
        _print_scaling(scaling, console)
    for line in throughput_lines(groups):
        console.print(Text(line))
    for note in notes.shared:
        console.print(Text(note, style="yellow"))
    if comparison.dropped:
        console.print(Text(dropped_title(comparison), style="bold yellow"))
        console.print(_dropped_table(comparison.dropped))


def _print_scaling(scaling: Scaling, console: Console) -> None:
    """Print a table of the settings by number of processes, the best ones in words, and how to read the figures."""
    console.print(Text(scaling_title(scaling), style="bold"))
    labels = [point.label for point in scaling.points]
    console.print(_settings_table(labels, scaling_columns(scaling), console.width), crop=False)
    for sentence in scaling_sentences(scaling):
        console.print(Text(sentence, style="bold"))
    for note in scaling_notes(scaling):
        console.print(Text(note, style="yellow"))
    console.print()


def _settings_table(labels: Iterable[str], columns: Sequence[TableColumn], width: int) -> Table:
    """Ranges stand below their medians. In a narrow terminal the labels wrap; no number is ever cut."""
    labels = [clean(label) for label in labels]
    numbers_width = sum(column.width for column in columns)
    longest_label = max(map(len, labels + ["setting"]))
    gap = 1
    if longest_label + numbers_width + 2 * len(columns) <= width:
        gap = 2
    gaps_width = gap * len(columns)
    label_width = min(longest_label, max(width - numbers_width - gaps_width, MIN_LABEL_WIDTH))
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),
        width=label_width + numbers_width + gaps_width,
    )
    table.add_column("setting", width=label_width)
    for column in columns:
        table.add_column(Text(f"{column.name}\n{column.unit}"), justify="right", width=column.width)
    for number, label in enumerate(labels):
        cells = [stacked(column.cells[number]) for column in columns]
        table.add_row(_wrapped_text(label, label_width), *cells)
    return table


def stacked(cell: Cell) -> Text:
    """A figure, and its interval or range below it."""
    return Text.assemble(cell.text, (f"\n{cell.range}".rstrip(), "dim"))


def indented(text: Text | Table, columns: int = 2) -> Padding:
    return Padding(text, (0, 0, 0, columns), expand=False)


def _wrapped_text(label: str, width: int) -> Text:
    # Not left to rich, which wraps at spaces only: `max-autotune-no-cudagraphs` breaks at its hyphens.
    return Text("\n".join(textwrap.wrap(label, width)))


def _dropped_table(all_dropped: Iterable[Dropped]) -> Table:
    """The median step time of dropped rows is still shown; the line below a reason names their runs."""
    table = plain_table("setting", "runs", "step ms", "reason")
    for dropped in all_dropped:
        times_ms = step_times_ms(dropped.rows)
        step_time_ms = median(times_ms) if times_ms else None
        run_ids = ", ".join(row.run_id for row in dropped.rows)
        table.add_row(
            _wrapped_text(clean(dropped.label), LABEL_WIDTH),
            str(len(dropped.rows)),
            fixed(step_time_ms, time_decimals([step_time_ms], 4)),
            Text.assemble(short(dropped.reason), "\n", (clean(run_ids), "dim")),
        )
    return table


def plain_table(first: str, *titles: str) -> Table:
    """A table with text in the first and the last column, and numbers between them."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for title in titles[:-1]:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(titles[-1], overflow="fold")
    return table


def print_changes(changes: Changes, console: Console | None = None) -> None:
    """Print how each setting changed against its baseline; then the settings that only one side has, and the runs whose
    schema version only one side has."""
    console = console or terminal()
    table = plain_table("setting", "step", "memory", "verdict")
    for change in changes.changes:
        setting = Text.assemble(clean(change.label), "\n", (clean(work_label(change)), "dim"))
        table.add_row(setting, _step_change(change), _memory_change(change), _change_verdict(change))
    if changes.changes:
        console.print(table)
        console.print(Text(CHANGE_NOTE, style="dim"))
    if any(change.step_time.measurable is None for change in changes.changes):
        console.print(Text(TOO_FEW_RUNS, style="yellow"))
    for label in changes.failed:
        console.print(Text(f"Failed now: {clean(label)}", style="red"))
    for label in changes.missing:
        console.print(Text(f"Not measured now: {clean(label)}", style="yellow"))
    for label in changes.added:
        console.print(Text(f"Not in the baseline: {clean(label)}", style="yellow"))
    for uncompared in changes.incomparable:
        console.print(
            Text(f"Not compared: {clean(uncompared.label)}: {_versions_of_sides(uncompared)}", style="yellow")
        )
    if changes.incomparable:
        reason = schema_changes(changes.schema_versions[0], changes.schema_versions[-1])
        console.print(Text(f"Schema versions do not compare: {reason}. {MEASURE_AGAIN}", style="yellow"))


def _versions_of_sides(rest: Incomparable) -> str:
    sides = []
    if rest.rows:
        sides.append(f"{versioned_run_counts(rest.rows)} now")
    if rest.baseline:
        sides.append(f"{versioned_run_counts(rest.baseline)} in the baseline")
    return ", ".join(sides)


def _step_change(change: Change) -> Text:
    now, baseline = time_cells(change.step_time_ms)
    lines = [f"{baseline.text} -> {now.text} ms"]
    if baseline.range or now.range:
        lines.append(f"{baseline.range or '-'} -> {now.range or '-'}")
    lines.append(ratio_text(change.step_time))
    return Text("\n".join(lines))


def _memory_change(change: Change) -> Text:
    if change.memory is None or change.peak_allocated_bytes is None:
        return Text("-")
    now, baseline = change.peak_allocated_bytes
    return Text(f"{size(int(baseline))} -> {size(int(now))}\n{factor_text(change.memory)}")


def _change_verdict(change: Change) -> Text:
    style = ""
    if change.slower or change.uses_more_memory:
        style = "red"
    elif change.step_time.measurable is None:
        style = "yellow"
    elif change.step_time.measurable:
        style = "green"
    return Text(change_verdict(change), style=style)
