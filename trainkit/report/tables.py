"""What was measured, for people: tables for the terminal and Markdown.

Names, reasons and errors came from users and logs: they are printed as they are, never read as markup.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Comparison, Group
from trainkit.analysis.dropping import Dropped, step_time_ms, why_dropped
from trainkit.analysis.grouping import as_typed
from trainkit.analysis.regressions import Change, Changes
from trainkit.diagnosis.findings import Diagnosis, Phase
from trainkit.formatting import clean, decimals, fixed, in_one_unit, percent, short, size
from trainkit.report.figures import factor_text, interval_text, median_of, range_text, ratio_text
from trainkit.report.labels import (
    ROUNDS,
    break_cost,
    busy,
    count_of_findings,
    diagnosed,
    dropped_title,
    finding_lines,
    finding_title,
    machine_of,
    machines_of,
    notes_of,
    num_runs,
    phase_words,
    place_of,
    recompiles,
    stage_words,
    trained_of,
    work_of,
)
from trainkit.report.verdicts import cache_state, recommendation, verdict
from trainkit.results.row import Row

MIN_LABEL_WIDTH, LABEL_WIDTH = len("max-autotune-no-"), len("max-autotune-no-cudagraphs")


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print for each group a table, fastest setting first, and what it means; then what was dropped and why."""
    console = console or terminal()
    if not comparison.groups:
        console.print(Text("Nothing to compare: no run was measured."))
    notes, notes_of_all = notes_of(comparison.groups)
    for group, machine, own in zip(comparison.groups, machines_of(comparison.groups), notes, strict=True):
        console.print(Text(work_of(group), style="bold"))
        if machine:
            console.print(Text(machine, style="dim"))
        console.print(_group_table(group, console.width), crop=False)
        console.print(Text(recommendation(group), style="bold"))
        for setting in group.candidates:
            console.print(Padding(Text(verdict(setting, group)), (0, 0, 0, 2), expand=False))
        for note in own:
            console.print(Text(note, style="yellow"))
        console.print()
    for note in notes_of_all:
        console.print(Text(note, style="yellow"))
    if comparison.dropped:
        console.print(Text(dropped_title(comparison), style="bold yellow"))
        console.print(_dropped_table(comparison.dropped))


def markdown_comparison(comparison: Comparison) -> str:
    """The same in Markdown, each table under a line that names the work, and the machine where it is another one."""
    blocks = [] if comparison.groups else ["Nothing to compare: no run was measured."]
    notes, notes_of_all = notes_of(comparison.groups)
    for group, machine, own in zip(comparison.groups, machines_of(comparison.groups), notes, strict=True):
        columns = columns_of(group.candidates)
        heads = ["setting", *(f"{c.name} {c.unit}".strip() for c in columns)]
        lines = ["<br>".join([f"**{escape(work_of(group))}**", *filter(None, [escape(machine)])]), ""]
        lines += [_pipes(heads), _pipes([":--", *("--:" for _ in columns)])]
        for i, setting in enumerate(group.candidates):
            lines.append(_pipes([escape(setting.label), *(c.inline(i) for c in columns)]))
        blocks.append("\n".join(lines))
        verdicts = [f"- {escape(verdict(setting, group))}" for setting in group.candidates]
        blocks.append("\n".join([f"**{escape(recommendation(group))}**", "", *verdicts]))
        blocks += map(escape, own)
    blocks += map(escape, notes_of_all)
    if comparison.dropped:
        lines = [f"- {escape(f'{d.label} ({num_runs(len(d.rows))}): {short(d.reason)}')}" for d in comparison.dropped]
        blocks.append("\n".join([dropped_title(comparison), "", *lines]))
    return "\n\n".join(blocks) + "\n"


def markdown_compiled(rows: Iterable[Row]) -> str:
    """A table of what the compiler did in each run but eager ones and repeats, dropped ones included: by what was typed
    for it, and where both are among them whether it trained or called. Below it what each recompiled for."""
    rows = list(rows)
    kinds = len({row.kind for row in rows}) > 1
    fields = ("num_graphs", "num_graph_breaks", "num_recompiles", "num_eager_steps", "num_steps")
    lines: dict[str, str] = {}
    causes: dict[str, list[str]] = {}
    for row in rows:
        typed = [as_typed(word) for word in row.overrides if not word.startswith("experiment=")]
        words = " ".join([f"kind={row.kind}"] * kinds + typed)
        if row.compile_mode != "eager" and row.num_graphs is not None and words not in lines:
            counts = [fixed(getattr(row, name), 0) for name in fields]
            lines[words] = _pipes([escape(words), *counts, escape(short(why_dropped(row) or ""))])
            for cause, _, _ in recompiles(row):
                causes.setdefault(short(cause), []).append(words)
    heads = ["setting", "graphs", "breaks", "recompiles", "steps uncompiled", "steps", "dropped because"]
    table = [_pipes(heads), _pipes([":--", *("--:" for _ in fields), ":--"]), *lines.values()]
    for cause, of in causes.items():
        table += ["", f"Recompiled for {escape(cause)}: {escape('; '.join(dict.fromkeys(of)))}."]
    return "\n".join(table) + "\n"


def markdown_stages(diagnosis: Diagnosis) -> str:
    """The table of `diagnosis.stages`, under a line that names the network, what was typed for it, and the machine."""
    names, lines = _stages(diagnosis.stages or {})
    of = f"{diagnosis.model}, {diagnosis.compile_mode}, {' '.join(diagnosis.overrides)}"
    heading = f"**{escape(of)}**<br>{escape(machine_of(diagnosis.machine))}"
    table = [_pipes(names), _pipes([":--", *("--:" for _ in names[1:])]), *(_pipes(line) for line in lines)]
    return "\n".join([heading, "", *table]) + "\n"


def print_changes(changes: Changes, console: Console | None = None) -> None:
    """Print how each setting did against its baseline, and then what only one side has."""
    console = console or terminal()
    table = _plain_table("setting", "step", "memory", "verdict")
    for change in changes.changes:
        digits = decimals(change.step_time_ms, 4)
        step = Text.assemble(
            " -> ".join(fixed(ms, digits) for ms in reversed(change.step_time_ms)),
            f" ms\n{ratio_text(change.step_time)}",
        )
        memory = Text("-")
        if change.memory is not None and change.peak_allocated_bytes is not None:
            then, now = (size(int(peak)) for peak in reversed(change.peak_allocated_bytes))
            memory = Text(f"{then} -> {now}\n{factor_text(change.memory)}")
        named = Text.assemble(clean(change.label), "\n", (clean(trained_of(change)), "dim"))
        table.add_row(named, step, memory, _changed(change))
    if changes.changes:
        console.print(table)
    for label in changes.failed:
        console.print(Text(f"Failed now: {clean(label)}", style="red"))
    for title, labels in (("Not measured now", changes.missing), ("Not in the baseline", changes.added)):
        for label in labels:
            console.print(Text(f"{title}: {clean(label)}", style="yellow"))


def print_findings(diagnosis: Diagnosis, console: Console | None = None) -> None:
    """Print what was diagnosed, and each finding with its line, why, and what to do."""
    console = console or terminal()
    console.print(Text(diagnosed(diagnosis), style="bold"))
    console.print(Text(machine_of(diagnosis.machine), style="dim"))
    console.print()
    console.print(Text(count_of_findings(diagnosis), style="bold" if diagnosis.findings else "bold green"))
    for finding in diagnosis.findings:
        console.print()
        console.print(Text(finding_title(finding), style="bold yellow"))
        console.print(Padding(Text(place_of(finding, Path.cwd()), style="cyan"), (0, 0, 0, 2), expand=False))
        if finding.code:
            console.print(Padding(Text(clean(finding.code), style="bold"), (0, 0, 0, 4), expand=False))
        lines = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for name, words in finding_lines(finding, diagnosis.phases).items():
            lines.add_row(Text(name, style="dim"), Text(words, style={"do": "green", "torch": "dim"}.get(name, "")))
        console.print(Padding(lines, (0, 0, 0, 2), expand=False))
    console.print()


def print_measurements(diagnosis: Diagnosis, console: Console | None = None) -> None:
    """Print what each phase gains from being compiled or why it failed, what each graph break costs, and the stages."""
    console = console or terminal()
    console.print(_phases_table(diagnosis.phases))
    if any(phase.step_time_ms for phase in diagnosis.phases):
        console.print(Text(ROUNDS, style="dim"))
    for phase in diagnosis.phases:
        if phase.error:
            console.print(Text(f"{phase.name} failed: {clean(phase.error)}", style="red"))
        if said := busy(phase, diagnosis.compile_mode):
            console.print(Text(said))
    costs = [(place_of(f, Path.cwd()), cost) for f in diagnosis.findings if (cost := break_cost(f, diagnosis.phases))]
    if costs:
        table = _plain_table("graph break", "cost")
        for place, cost in costs:
            table.add_row(Text(place), Text(clean(cost)))
        console.print()
        console.print(table)
    if diagnosis.stages:
        console.print()
        console.print(_stages_table(diagnosis.stages))


def _phases_table(phases: Sequence[Phase]) -> Table:
    """Intervals stand below their figures."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("phase")
    for name in phase_words(phases[0]) if phases else ():
        table.add_column(name, justify="right")
    for phase in phases:
        cells = phase_words(phase).values()
        table.add_row(
            clean(phase.name), *(Text.assemble(said, (f"\n{between}".rstrip(), "dim")) for said, between in cells)
        )
    return table


def _stages_table(stages: Mapping[str, Mapping[str, float]]) -> Table:
    names, lines = _stages(stages)
    table = _plain_table(*names)
    for line in lines:
        table.add_row(*line)
    return table


def _stages(stages: Mapping[str, Mapping[str, float]]) -> tuple[list[str], list[list[str]]]:
    """The heads of a table of seconds by backend and stage, and its lines."""
    names, spent = stage_words(stages)
    lines = [[backend, *cells, fixed(sum(stages[backend].values()), 2)] for backend, cells in spent.items()]
    return ["compile, s", *names, "total"], lines


def _changed(change: Change) -> Text:
    worse = [
        word for word, holds in (("slower", change.slower), ("uses more memory", change.uses_more_memory)) if holds
    ]
    if worse:
        return Text(", ".join(worse), style="red")
    if change.step_time.measurable is None:
        return Text("unknown: too few runs", style="yellow")
    return Text("faster", style="green") if change.step_time.measurable else Text("no measurable difference")


@dataclass(frozen=True)
class Column:
    """One quantity of every setting: values that align when set flush right, and their ranges ("" where unknown)."""

    name: str
    unit: str
    values: list[str]
    ranges: list[str]

    @property
    def width(self) -> int:
        return max(map(len, [self.name, self.unit, *self.values, *self.ranges]))

    def inline(self, i: int) -> str:
        return f"{self.values[i]} ({self.ranges[i]})" if self.ranges[i] else self.values[i]


def columns_of(settings: Iterable[Candidate]) -> list[Column]:
    settings = list(settings)
    speedup = [s.speedup for s in settings]
    step = [s.step_time_ms for s in settings]
    kind = settings[0].rows[0].kind
    epoch = [median_of(s.epoch_train_time_s) for s in settings]
    unit, memory = in_one_unit(s.peak_allocated_bytes for s in settings)
    accuracy = [s.val_accuracy for s in settings]
    digits = decimals((s.median for s in step), 4)
    return [
        Column("speed-up", "over eager", [factor_text(s) for s in speedup], [interval_text(s) for s in speedup]),
        Column(
            "compile", "s", [fixed(median_of(s.compile_time_s), 1) for s in settings], [_cache(s) for s in settings]
        ),
        Column(
            "latency" if kind == "forward" else "step",
            "ms",
            [fixed(s.median, digits) for s in step],
            [range_text(s, digits) for s in step],
        ),
        *(_of_calls(settings) if kind == "forward" else [_column("epoch", "s", epoch, decimals(epoch, 3))]),
        _column("memory", unit, memory, decimals(memory, 3)),
        *(
            [Column("accuracy", "", [fixed(median_of(s), 3) for s in accuracy], [range_text(s, 3) for s in accuracy])]
            if any(accuracy)
            else []
        ),
        _column("runs", "", [s.num_repeats for s in settings], 0),
    ]


def _of_calls(settings: Sequence[Candidate]) -> Iterable[Column]:
    """Medians over the repeats."""
    p90, p99, misses = (
        [
            median(known) if (known := [v for r in s.rows if (v := getattr(r, field)) is not None]) else None
            for s in settings
        ]
        for field in ("step_time_ms_p90", "step_time_ms_p99", "deadline_miss_frac")
    )
    digits = decimals([*p90, *p99], 4)
    yield _column("p90", "ms", p90, digits)
    yield _column("p99", "ms", p99, digits)
    if any(of is not None for of in misses):
        yield Column("missed", "deadline", [percent(of) for of in misses], ["" for _ in misses])


def _cache(setting: Candidate) -> str:
    """What a warm compile cache made of the compile time, and whether no run found a cold one; "" where none was
    found warm."""
    warm = setting.warm_compile_time_s
    return "; ".join(filter(None, [cache_state(setting), f"warm {fixed(warm.median, 1)}" if warm else ""]))


def _column(name: str, unit: str, values: Sequence[float | None], decimals: int) -> Column:
    return Column(name, unit, [fixed(value, decimals) for value in values], ["" for _ in values])


def _group_table(group: Group, width: int) -> Table:
    """Ranges stand below their medians. Where the width is short the labels wrap; no number is ever cut."""
    columns, labels = columns_of(group.candidates), [clean(setting.label) for setting in group.candidates]
    taken, longest = sum(column.width for column in columns), max(len("setting"), *map(len, labels))
    gap = 2 if longest + taken + 2 * len(columns) <= width else 1
    room = min(longest, max(width - taken - gap * len(columns), MIN_LABEL_WIDTH))
    whole = room + taken + gap * len(columns)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0), width=whole)
    table.add_column("setting", width=room)
    for column in columns:
        table.add_column(Text(f"{column.name}\n{column.unit}"), justify="right", width=column.width)
    for i, label in enumerate(labels):
        cells = [Text.assemble(c.values[i], (f"\n{c.ranges[i]}".rstrip(), "dim")) for c in columns]
        table.add_row(_wrapped(label, room), *cells)
    return table


def _wrapped(label: str, width: int) -> Text:
    # Not left to rich, which wraps at spaces only: `max-autotune-no-cudagraphs` breaks at its hyphens.
    return Text("\n".join(textwrap.wrap(label, width)))


def _dropped_table(dropped: Iterable[Dropped]) -> Table:
    """What dropped rows measured all the same stays in sight; where they lie says the line under the reason."""
    table = _plain_table("setting", "runs", "step ms", "reason")
    for drop in dropped:
        steps = [step_time for row in drop.rows if (step_time := step_time_ms(row)) is not None]
        step = median(steps) if steps else None
        where = ", ".join(row.run_id for row in drop.rows)
        reason = Text.assemble(short(drop.reason), "\n", (clean(where), "dim"))
        label = _wrapped(clean(drop.label), LABEL_WIDTH)
        table.add_row(label, str(len(drop.rows)), fixed(step, decimals([step], 4)), reason)
    return table


def _plain_table(first: str, *numbers: str) -> Table:
    """Words in the first and the last column, numbers between them."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for name in numbers[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(numbers[-1], overflow="fold")
    return table


class Unpadded(Console):
    """Prints no blanks at the ends of lines, with which rich fills cells up."""

    def print(self, *objects: Any, **options: Any) -> None:
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE))
        self.file.flush()


def terminal() -> Console:
    """Standard output; wide enough for a table's columns where it is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Unpadded(width=120)


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", clean(text))
