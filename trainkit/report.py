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

from trainkit.baseline import Change, Changes
from trainkit.compare import Comparison, Dropped, Group, Setting, step_time_ms, why_dropped
from trainkit.findings import Diagnosis, Phase
from trainkit.results import EpochRecord, Row
from trainkit.words import (
    COMPILE_PARTS,
    ROUNDS,
    advice,
    cache_of,
    clean,
    compiled_parts,
    count_of_findings,
    decimals,
    diagnosed,
    dropped_title,
    finding_lines,
    finding_title,
    fixed,
    found,
    graph_breaks,
    in_one_unit,
    interval,
    link_of,
    machine_of,
    middle,
    missed,
    notes_of,
    num_runs,
    percent,
    phase_words,
    place_of,
    range_of,
    recompiles,
    scientific,
    seconds,
    short,
    size,
    skipped,
    stage_words,
    step_of,
    times,
    trained_of,
    uncompiled,
    verdict,
    work_of,
)

FILES = ("row.json", "epochs.jsonl", "checkpoints", "wandb", "csv")
MOST_CAUSES = 8
MOST_SHAPES = 12
MIN_LABEL_WIDTH, LABEL_WIDTH = len("max-autotune-no-"), len("max-autotune-no-cudagraphs")


def print_epoch(record: EpochRecord, max_epochs: int | None, console: Console | None = None) -> None:
    """Print one line: training seconds + validation seconds, and how many of both went into compiling."""
    number = f"{record.epoch + 1}"
    if max_epochs is not None and max_epochs > 0:
        number = f"{number:>{len(str(max_epochs))}}/{max_epochs}"
    validating = f" + {seconds(record.val_time_s)}" if record.val_time_s else ""
    compiling = f" ({seconds(record.compile_time_s)} compile)" if record.compile_time_s else ""
    worth = f"loss {fixed(record.train_loss, 4)}  val {fixed(record.val_loss, 4)}"
    line = f"epoch {number}  {worth}  accuracy {fixed(record.val_accuracy, 3)}  {seconds(record.train_time_s)}"
    (console or _terminal()).print(Text(line + validating + compiling), soft_wrap=True)


def job_outcome(row: Row) -> str:
    """One line on how a job of a sweep ended: what a step takes, or why a comparison will drop the row."""
    digits = decimals([step_time_ms(row)], 4)
    measured = f"{step_of(row)} {fixed(step_time_ms(row), digits)} ms, compile {seconds(row.compile_time_s)}"
    return short(why_dropped(row) or f"{row.status}: {measured}")


def print_run(row: Row, run_dir: Path | str, console: Console | None = None) -> None:
    """Print what was asked and got, what it cost and was worth, where its files lie, and what went wrong."""
    console = console or _terminal()
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, words in _run_lines(row, Path(run_dir)):
        table.add_row(name, Text(clean(words)))
    console.print(table)
    if reason := why_dropped(row):
        console.print(Text(short(reason), style="yellow" if row.status == "ok" else "red"))


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print for each group a table, fastest setting first, and what it means; then what was dropped and why."""
    console = console or _terminal()
    if not comparison.groups:
        console.print(Text("Nothing to compare: no run was measured."))
    for group in comparison.groups:
        console.print(Text(work_of(group), style="bold"))
        console.print(Text(machine_of(group.machine), style="dim"))
        console.print(_group_table(group, console.width), crop=False)
        console.print(Text(advice(group), style="bold"))
        for setting in group.settings:
            console.print(Padding(Text(verdict(setting, group)), (0, 0, 0, 2), expand=False))
        for note in notes_of(group):
            console.print(Text(note, style="yellow"))
        console.print()
    if comparison.dropped:
        console.print(Text(dropped_title(comparison), style="bold yellow"))
        console.print(_dropped_table(comparison.dropped))


def markdown_comparison(comparison: Comparison) -> str:
    """The same in Markdown, each table under a line that names the work and the machine."""
    blocks = [] if comparison.groups else ["Nothing to compare: no run was measured."]
    for group in comparison.groups:
        columns = columns_of(group.settings)
        heads = ["setting", *(f"{c.name} {c.unit}".strip() for c in columns)]
        lines = [f"**{escape(work_of(group))}**<br>{escape(machine_of(group.machine))}", ""]
        lines += [_pipes(heads), _pipes([":--", *("--:" for _ in columns)])]
        for i, setting in enumerate(group.settings):
            lines.append(_pipes([escape(setting.label), *(c.inline(i) for c in columns)]))
        blocks.append("\n".join(lines))
        verdicts = [f"- {escape(verdict(setting, group))}" for setting in group.settings]
        blocks.append("\n".join([f"**{escape(advice(group))}**", "", *verdicts]))
        blocks += [escape(note) for note in notes_of(group)]
    if comparison.dropped:
        lines = [f"- {escape(f'{d.label} ({num_runs(len(d.rows))}): {short(d.reason)}')}" for d in comparison.dropped]
        blocks.append("\n".join([dropped_title(comparison), "", *lines]))
    return "\n\n".join(blocks) + "\n"


def markdown_compiled(rows: Iterable[Row]) -> str:
    """A table of what the compiler did in each run but eager ones and repeats, dropped ones included: by what was typed
    for it."""
    fields = ("num_graphs", "num_graph_breaks", "num_recompiles", "num_eager_steps", "num_steps")
    lines: dict[str, str] = {}
    for row in rows:
        words = " ".join(word for word in row.overrides if not word.startswith("experiment="))
        if row.compile_mode != "eager" and row.num_graphs is not None and words not in lines:
            counts = [fixed(getattr(row, name), 0) for name in fields]
            lines[words] = _pipes([escape(words), *counts, escape(short(why_dropped(row) or ""))])
    heads = ["setting", "graphs", "breaks", "recompiles", "steps uncompiled", "steps", "dropped because"]
    return "\n".join([_pipes(heads), _pipes([":--", *("--:" for _ in fields), ":--"]), *lines.values()]) + "\n"


def markdown_stages(diagnosis: Diagnosis) -> str:
    """The table of `diagnosis.stages`, under a line that names the network, what was typed for it, and the machine."""
    names, lines = _stages(diagnosis.stages or {})
    of = f"{diagnosis.model}, {diagnosis.compile_mode}, {' '.join(diagnosis.overrides)}"
    heading = f"**{escape(of)}**<br>{escape(machine_of(diagnosis.machine))}"
    table = [_pipes(names), _pipes([":--", *("--:" for _ in names[1:])]), *(_pipes(line) for line in lines)]
    return "\n".join([heading, "", *table]) + "\n"


def print_changes(changes: Changes, console: Console | None = None) -> None:
    """Print how each setting did against its baseline, and then what only one side has."""
    console = console or _terminal()
    table = _plain_table("setting", "step", "memory", "verdict")
    for change in changes.changes:
        digits = decimals(change.step_time_ms, 4)
        step = Text.assemble(
            " -> ".join(fixed(ms, digits) for ms in reversed(change.step_time_ms)),
            f" ms\n{found(change.step_time)}",
        )
        memory = Text("-")
        if change.memory is not None and change.peak_allocated_bytes is not None:
            then, now = (size(int(peak)) for peak in reversed(change.peak_allocated_bytes))
            memory = Text(f"{then} -> {now}\n{times(change.memory)}")
        named = Text.assemble(clean(change.label), "\n", (clean(trained_of(change)), "dim"))
        table.add_row(named, step, memory, _changed(change))
    if changes.changes:
        console.print(table)
    for label in changes.failed:
        console.print(Text(f"Failed now: {clean(label)}", style="red"))
    for title, labels in (("Not measured now", changes.missing), ("Not in the baseline", changes.added)):
        for label in labels:
            console.print(Text(f"{title}: {clean(label)}", style="yellow"))


def print_diagnosis(diagnosis: Diagnosis, console: Console | None = None) -> None:
    """Print what each phase gains from being compiled, then each finding with its line, why, and what to do."""
    console = console or _terminal()
    console.print(Text(diagnosed(diagnosis), style="bold"))
    console.print(Text(machine_of(diagnosis.machine), style="dim"))
    console.print()
    console.print(_phases_table(diagnosis.phases))
    if any(phase.step_time_ms for phase in diagnosis.phases):
        console.print(Text(ROUNDS, style="dim"))
    for phase in diagnosis.phases:
        if phase.error:
            console.print(Text(f"{phase.name} failed: {clean(phase.error)}", style="red"))
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
    worse = [word for word, holds in (("slower", change.slower), ("hungrier", change.hungrier)) if holds]
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


def columns_of(settings: Iterable[Setting]) -> list[Column]:
    settings = list(settings)
    speedup = [s.speedup for s in settings]
    step = [s.step_time_ms for s in settings]
    kind = settings[0].rows[0].kind
    epoch = [middle(s.epoch_train_time_s) for s in settings]
    unit, memory = in_one_unit(s.peak_allocated_bytes for s in settings)
    accuracy = [s.val_accuracy for s in settings]
    digits = decimals((s.median for s in step), 4)
    return [
        Column("speed-up", "over eager", [times(s) for s in speedup], [interval(s) for s in speedup]),
        Column("compile", "s", [fixed(middle(s.compile_time_s), 1) for s in settings], [_cache(s) for s in settings]),
        Column(
            "latency" if kind == "forward" else "step",
            "ms",
            [fixed(s.median, digits) for s in step],
            [range_of(s, digits) for s in step],
        ),
        *(_of_calls(settings) if kind == "forward" else [_column("epoch", "s", epoch, decimals(epoch, 3))]),
        _column("memory", unit, memory, decimals(memory, 3)),
        Column("accuracy", "", [fixed(middle(s), 3) for s in accuracy], [range_of(s, 3) for s in accuracy]),
        _column("runs", "", [s.num_repeats for s in settings], 0),
    ]


def _of_calls(settings: Sequence[Setting]) -> Iterable[Column]:
    """Medians over the repeats."""
    slow, misses = (
        [[known for row in s.rows if (known := getattr(row, field)) is not None] for s in settings]
        for field in ("step_time_ms_p99", "deadline_miss_frac")
    )
    p99 = [median(of) if of else None for of in slow]
    yield _column("p99", "ms", p99, decimals(p99, 4))
    if any(misses):
        yield Column("missed", "deadline", [percent(median(of) if of else None) for of in misses], ["" for _ in misses])


def _cache(setting: Setting) -> str:
    """What a warm compile cache made of the compile time; "" where no run found one."""
    if setting.warm_compile_time_s is not None:
        return f"warm {fixed(setting.warm_compile_time_s.median, 1)}"
    return cache_of(setting)


def _column(name: str, unit: str, values: Sequence[float | None], decimals: int) -> Column:
    return Column(name, unit, [fixed(value, decimals) for value in values], ["" for _ in values])


def _group_table(group: Group, width: int) -> Table:
    """Ranges stand below their medians. Where the width is short the labels wrap; no number is ever cut."""
    columns, labels = columns_of(group.settings), [clean(setting.label) for setting in group.settings]
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


def _run_lines(row: Row, run_dir: Path) -> Iterable[tuple[str, str]]:
    """Name and words of each line of a run's summary. What was not measured is "-"."""
    yield "run", f"{row.run_id}: {row.status}"
    yield "asked", ", ".join([trained_of(row), row.compile_mode, row.precision, f"seed {row.seed}"])
    yield "overrides", " ".join(row.overrides) or "-"
    yield "got", row.effective_mode or "-"
    yield "compile", _named({"time": seconds(row.compile_time_s), **_compiled(row)})
    if row.compile_time_s:
        yield "", ", ".join([f"start-up {seconds(row.compile_startup_s)} apart", *_shares(row)])
    if row.compiled_parts:
        yield "parts", compiled_parts(row)
    yield from _graph_breaks(row)
    yield from _recompiles(row)
    hits = {"hits": fixed(row.cache_hits, 0), "misses": fixed(row.cache_misses, 0)}
    yield "cache", _named({"found": row.cache_found or "-", **hits})
    yield step_of(row), _steps(row)
    yield from (("", words) for words in (uncompiled(row), skipped(row)) if words)
    if row.forward_time_ms_p50 is not None:
        parts = (row.forward_time_ms_p50, row.backward_time_ms_p50, row.optimizer_time_ms_p50)
        words = [f"{fixed(ms, decimals(parts, 3))} ms" for ms in parts]
        yield "", f"{_named(dict(zip(('forward', 'backward', 'optimizer'), words, strict=True)))} (profiling epoch)"
    yield from _calls(row) if row.kind == "forward" else _training(row)
    yield "memory", _named({name: size(value) for name, value in _peaks(row).items()})
    if row.check_passed is not None or row.check_reason is not None:
        yield "check", _checked(row)
    yield "machine", machine_of(vars(row))
    names = [f"{name}/" if (run_dir / name).is_dir() else name for name in FILES if (run_dir / name).exists()]
    yield "files", " ".join([f"{run_dir}:", *names]) if names else f"{run_dir}"


def _training(row: Row) -> Iterable[tuple[str, str]]:
    yield "epoch", _named({"train": seconds(row.epoch_train_time_s), "validation": seconds(row.epoch_val_time_s)})
    yield "speed", _named({"samples/s": fixed(row.samples_per_s, 0), "waiting for data": percent(row.data_wait_frac)})
    yield "loss", _named({"train": fixed(row.train_loss, 4), "validation": fixed(row.val_loss, 4)})
    yield "accuracy", _named({"validation": fixed(row.val_accuracy, 3), "epochs": fixed(row.num_epochs, 0)})


def _calls(row: Row) -> Iterable[tuple[str, str]]:
    if words := missed(row):
        yield "deadline", words
    for number, link in enumerate(row.chain or []):
        yield "" if number else "chain", f"{percent(link['call_frac'])} {link_of(link, row)}: {_latency(link)}"
    shapes = sorted(row.latency_by_shape or [], key=lambda one: -one["num_calls"])
    for number, one in enumerate(shapes[:MOST_SHAPES]):
        yield "" if number else "shapes", f"{one['shape']}: {_latency(one)}; {fixed(one['num_calls'], 0)} calls"
    if others := shapes[MOST_SHAPES:]:
        yield "", f"{len(others)} more, in row.json"
    yield "speed", _named({"samples/s": fixed(row.samples_per_s, 0)})
    yield "accuracy", fixed(row.val_accuracy, 3)


def _latency(of: Mapping[str, Any]) -> str:
    times_ms = {name: of[f"time_ms_{name}"] for name in ("p50", "p90", "p99")}
    digits = decimals(times_ms.values(), 4)
    return _named({name: "-" if ms is None else f"{fixed(ms, digits)} ms" for name, ms in times_ms.items()})


def _named(words: dict[str, str]) -> str:
    return ", ".join(f"{name} {word}" for name, word in words.items())


def _compiled(row: Row) -> dict[str, str]:
    counts = {
        "graphs": row.num_graphs,
        "breaks": row.num_graph_breaks,
        "recompiles": row.num_recompiles,
        "CUDA graphs": row.num_cudagraphs,
    }
    return {name: fixed(count, 0) for name, count in counts.items()}


def _graph_breaks(row: Row) -> Iterable[tuple[str, str]]:
    """A line for each of the first, with what to do about it in the next, and one for the others."""
    every = graph_breaks(row)
    for number, (cause, told) in enumerate(every[:MOST_CAUSES]):
        yield "" if number else "graph breaks", short(cause)
        yield "", f"{told.cause}: {told.remedy}"
    if len(every) > MOST_CAUSES:
        yield "", f"{len(every) - MOST_CAUSES} more, in row.json"


def _recompiles(row: Row) -> Iterable[tuple[str, str]]:
    """A line for each of the dearest, one for the others, and what to do about each kind of cause."""
    every = sorted(recompiles(row), key=lambda one: -(one[2] or 0.0))
    for number, (cause, _, time_s) in enumerate(every[:MOST_CAUSES]):
        yield "" if number else "recompiles", f"{seconds(time_s)}: {short(cause)}"
    if others := every[MOST_CAUSES:]:
        yield "", f"{seconds(sum(time_s or 0.0 for *_, time_s in others))}: {len(others)} more, in row.json"
    for told in dict.fromkeys(told for _, told, _ in every):
        yield "", f"{told.cause}: {told.remedy}"


def _shares(row: Row) -> Iterable[str]:
    """What the compile time went into: seconds and share of each part that took any."""
    for part, name in COMPILE_PARTS.items():
        cost = getattr(row, f"compile_{part}_s")
        if part != "startup" and cost and row.compile_time_s:
            yield f"{name} {seconds(cost)} ({percent(cost / row.compile_time_s)})"


def _checked(row: Row) -> str:
    if row.check_passed is None:
        return f"unknown: {row.check_reason}"
    differences = {
        name: f"{scientific(mine)} (eager {scientific(its)})"
        for name in ("loss", "grad", "param")
        if (mine := getattr(row, f"check_{name}_rel_diff")) is not None
        and (its := getattr(row, f"check_eager_{name}_rel_diff")) is not None
    }
    return f"{'same as eager' if row.check_passed else 'differs from eager'}: {_named(differences)} off float64"


def _steps(row: Row) -> str:
    quantiles = {"p50": row.step_time_ms_p50, "p90": row.step_time_ms_p90, "p99": row.step_time_ms_p99}
    digits = decimals(quantiles.values(), 4)
    words = {name: "-" if value is None else f"{fixed(value, digits)} ms" for name, value in quantiles.items()}
    counts = {"compiling": row.num_compiling_steps, "warm-up": row.num_warmup_steps, "steady": row.num_steady_steps}
    kinds = ", ".join(f"{fixed(count, 0)} {kind}" for kind, count in counts.items())
    return f"{_named(words)}; {kinds} of {fixed(row.num_steps, 0)}"


def _peaks(row: Row) -> dict[str, int | None]:
    if row.accelerator == "cpu":  # where all three are the same figure
        return {"resident": row.peak_device_bytes}
    return {"allocated": row.peak_allocated_bytes, "reserved": row.peak_reserved_bytes, "device": row.peak_device_bytes}


def _terminal() -> Console:
    """Standard output; wide enough for a table's columns where it is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", clean(text))
