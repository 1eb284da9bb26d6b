"""A diagnosis in the terminal.

Names, reasons and code come from users and logs: they are printed as they are, never read as markup.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainkit.diagnosis.findings import Diagnosis, Finding, Phase
from trainkit.formatting import clean
from trainkit.report.diagnosis_labels import (
    LINE_TITLES,
    break_cost,
    break_memory,
    device_use,
    diagnosis_title,
    finding_counts,
    finding_lines,
    finding_location,
    finding_title,
    line_table,
    phase_facts,
    phase_rows,
    rounds_note,
    stage_table,
)
from trainkit.report.labels import machine_label
from trainkit.report.terminal import indented, plain_table, stacked, terminal

LINE_STYLES = {"do": "green", "torch": "dim"}


def print_findings(diagnosis: Diagnosis, console: Console | None = None) -> None:
    """Print each finding with its source location, the reason and the remedy."""
    console = console or terminal()
    console.print(Text(diagnosis_title(diagnosis), style="bold"))
    console.print(Text(machine_label(diagnosis.machine), style="dim"))
    console.print()
    counts_style = "bold" if diagnosis.findings else "bold green"
    console.print(Text(finding_counts(diagnosis), style=counts_style))
    for finding in diagnosis.findings:
        console.print()
        _print_finding(finding, diagnosis.phases, console)
    console.print()


def _print_finding(finding: Finding, phases: Sequence[Phase], console: Console) -> None:
    console.print(Text(finding_title(finding), style="bold yellow"))
    console.print(indented(Text(finding_location(finding, Path.cwd()), style="cyan")))
    if finding.code:
        console.print(indented(Text(clean(finding.code), style="bold"), 4))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, line in finding_lines(finding, phases).items():
        table.add_row(Text(name, style="dim"), Text(line, style=LINE_STYLES.get(name, "")))
    console.print(indented(table))


def print_measurements(diagnosis: Diagnosis, console: Console | None = None) -> None:
    """Print the gain or the failure of each phase, the cost of each graph break, and the stages of a compile."""
    console = console or terminal()
    console.print(_phases_table(diagnosis.phases))
    note = rounds_note(diagnosis.phases)
    if note:
        console.print(Text(note, style="dim"))
    for phase in diagnosis.phases:
        if phase.error:
            console.print(Text(f"{phase.name} failed: {clean(phase.error)}", style="red"))
        used = device_use(phase, diagnosis.compile_mode)
        if used:
            console.print(Text(used))
        for fact in phase_facts(phase):
            console.print(Text(clean(fact)))
    _print_lines(diagnosis.phases, console)
    costs = _costs_table(diagnosis)
    if costs.row_count:
        console.print()
        console.print(costs)
    if diagnosis.stages:
        console.print()
        console.print(_stages_table(diagnosis.stages))


def _print_lines(phases: Sequence[Phase], console: Console) -> None:
    name, rows = line_table(phases)
    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    *counts, code = LINE_TITLES
    for title in counts:
        table.add_column(title, justify="left" if title == "line" else "right", no_wrap=True)
    table.add_column(code)  # the one column that gets narrower
    for *cells, source in rows:
        table.add_row(*map(Text, cells), Text(source, no_wrap=True, overflow="ellipsis"))
    console.print()
    console.print(Text(f"Operations of the graphs of {name} by source line"))
    console.print(table)


def _costs_table(diagnosis: Diagnosis) -> Table:
    table = plain_table("graph break", "cost")
    for finding in diagnosis.findings:
        cost = break_cost(finding, diagnosis.phases)
        memory = break_memory(finding, diagnosis.phases)
        if memory:
            cost += f"; {memory}"
        if cost:
            table.add_row(Text(finding_location(finding, Path.cwd())), Text(clean(cost)))
    return table


def _phases_table(phases: Sequence[Phase]) -> Table:
    """Intervals stand below their figures."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    rows = phase_rows(phases)
    for title in rows[0]:
        table.add_column(title, justify="left" if title == "phase" else "right")
    for row in rows:
        table.add_row(*[stacked(cell) for cell in row.values()])
    return table


def _stages_table(stages: Mapping[str, Mapping[str, float]]) -> Table:
    spent = stage_table(stages)
    table = plain_table("compile, s", *spent.stages, "total")
    for backend, cells in spent.seconds.items():
        table.add_row(backend, *cells, spent.totals[backend])
    return table
