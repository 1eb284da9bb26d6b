"""What was measured, for people: the only place where numbers become strings.

Names, reasons and errors came from users and logs: they are printed as they are, never read as markup.
"""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainkit.compare import Comparison, Dropped, Group, Setting, Spread, why_dropped
from trainkit.results import EpochRecord, Row

FILES = ("row.json", "epochs.jsonl", "checkpoints", "wandb", "csv")
LONGEST_REASON = 200  # an error of the compiler can be pages; all of it lies in row.json
MIN_LABEL_WIDTH, LABEL_WIDTH = len("max-autotune-no-"), len("max-autotune-no-cudagraphs")


def print_epoch(record: EpochRecord, max_epochs: int | None, console: Console | None = None) -> None:
    """Print one line: training seconds + validation seconds, and how many of both went into compiling."""
    number = f"{record.epoch + 1}"
    if max_epochs is not None and max_epochs > 0:
        number = f"{number:>{len(str(max_epochs))}}/{max_epochs}"
    validating = f" + {_seconds(record.val_time_s)}" if record.val_time_s else ""
    compiling = f" ({_seconds(record.compile_time_s)} compile)" if record.compile_time_s else ""
    worth = f"loss {_fixed(record.train_loss, 4)}  val {_fixed(record.val_loss, 4)}"
    line = f"epoch {number}  {worth}  accuracy {_fixed(record.val_accuracy, 3)}  {_seconds(record.train_time_s)}"
    (console or _terminal()).print(Text(line + validating + compiling), soft_wrap=True)


def job_outcome(row: Row) -> str:
    """One line on how a job of a sweep ended: what a step takes, or why a comparison will drop the row."""
    digits = _decimals([row.step_time_ms_p50], 4)
    measured = f"step {_fixed(row.step_time_ms_p50, digits)} ms, compile {_seconds(row.compile_time_s)}"
    return _short(why_dropped(row) or f"{row.status}: {measured}")


def print_run(row: Row, run_dir: Path | str, console: Console | None = None) -> None:
    """Print what was asked and got, what it cost and was worth, where its files lie, and what went wrong."""
    console = console or _terminal()
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, words in _run_lines(row, Path(run_dir)):
        table.add_row(name, Text(_clean(words)))
    console.print(table)
    if reason := why_dropped(row):
        console.print(Text(_short(reason), style="yellow" if row.status == "ok" else "red"))


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print a table for each group, fastest setting first, and then what was dropped and why."""
    console = console or _terminal()
    if not comparison.groups:
        console.print(Text("Nothing to compare: no run was measured."))
    for group in comparison.groups:
        console.print(Text(_work(group), style="bold"))
        console.print(Text(_machine(group.machine), style="dim"))
        console.print(_group_table(group, console.width), crop=False)
        if note := _note(group):
            console.print(Text(note, style="yellow"))
        console.print()
    if comparison.dropped:
        console.print(Text(_dropped_title(comparison), style="bold yellow"))
        console.print(_dropped_table(comparison.dropped))


def markdown_comparison(comparison: Comparison) -> str:
    """The same tables in Markdown, each under a line that names the work and the machine."""
    blocks = [] if comparison.groups else ["Nothing to compare: no run was measured."]
    for group in comparison.groups:
        columns = _columns(group.settings)
        heads = ["setting", *(f"{c.name} {c.unit}".strip() for c in columns)]
        lines = [f"**{_escape(_work(group))}**<br>{_escape(_machine(group.machine))}", ""]
        lines += [_pipes(heads), _pipes([":--", *("--:" for _ in columns)])]
        for i, setting in enumerate(group.settings):
            lines.append(_pipes([_escape(setting.label), *(c.inline(i) for c in columns)]))
        blocks.append("\n".join(lines))
        blocks += [_escape(note)] if (note := _note(group)) else []
    if comparison.dropped:
        lines = [f"- {_escape(f'{d.label} ({_runs(len(d.rows))}): {_short(d.reason)}')}" for d in comparison.dropped]
        blocks.append("\n".join([_dropped_title(comparison), "", *lines]))
    return "\n\n".join(blocks) + "\n"


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


def _columns(settings: Iterable[Setting]) -> list[Column]:
    settings = list(settings)
    speedup = [s.speedup for s in settings]
    step = [s.step_time_ms for s in settings]
    epoch = [_middle(s.epoch_train_time_s) for s in settings]
    unit, memory = _memory(s.peak_allocated_bytes for s in settings)
    accuracy = [s.val_accuracy for s in settings]
    digits = _decimals((s.median for s in step), 4)
    return [
        Column("speed-up", "over eager", [_times(s) for s in speedup], [_range(s, 2) for s in speedup]),
        _column("compile", "s", [_middle(s.compile_time_s) for s in settings], 1),
        Column("step", "ms", [_fixed(s.median, digits) for s in step], [_range(s, digits) for s in step]),
        _column("epoch", "s", epoch, _decimals(epoch, 3)),
        _column("memory", unit, memory, _decimals(memory, 3)),
        Column("accuracy", "", [_fixed(_middle(s), 3) for s in accuracy], [_range(s, 3) for s in accuracy]),
        _column("runs", "", [s.num_repeats for s in settings], 0),
    ]


def _column(name: str, unit: str, values: Sequence[float | None], decimals: int) -> Column:
    return Column(name, unit, [_fixed(value, decimals) for value in values], ["" for _ in values])


def _group_table(group: Group, width: int) -> Table:
    """Ranges stand below their medians. Where the width is short the labels wrap; no number is ever cut."""
    columns, labels = _columns(group.settings), [_clean(setting.label) for setting in group.settings]
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
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("setting", overflow="fold")
    table.add_column("runs", justify="right")
    table.add_column("step ms", justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for drop in dropped:
        steps = [row.step_time_ms_p50 for row in drop.rows if row.step_time_ms_p50 is not None]
        step = median(steps) if steps else None
        where = ", ".join(row.run_id for row in drop.rows)
        reason = Text.assemble(_short(drop.reason), "\n", (_clean(where), "dim"))
        label = _wrapped(_clean(drop.label), LABEL_WIDTH)
        table.add_row(label, str(len(drop.rows)), _fixed(step, _decimals([step], 4)), reason)
    return table


def _run_lines(row: Row, run_dir: Path) -> Iterable[tuple[str, str]]:
    """Name and words of each line of a run's summary. What was not measured is "-"."""
    yield "run", f"{row.run_id}: {row.status}"
    yield "asked", ", ".join([_trained(row), row.compile_mode, row.precision, f"seed {row.seed}"])
    yield "overrides", " ".join(row.overrides) or "-"
    yield "got", row.effective_mode or "-"
    yield "compile", _named({"time": _seconds(row.compile_time_s), **_compiled(row)})
    yield "cache", _named({"hits": _fixed(row.cache_hits, 0), "misses": _fixed(row.cache_misses, 0)})
    yield "step", _steps(row)
    yield "epoch", _named({"train": _seconds(row.epoch_train_time_s), "validation": _seconds(row.epoch_val_time_s)})
    yield "speed", _named({"samples/s": _fixed(row.samples_per_s, 0), "waiting for data": _percent(row.data_wait_frac)})
    yield "memory", _named({name: _bytes(value) for name, value in _peaks(row).items()})
    yield "loss", _named({"train": _fixed(row.train_loss, 4), "validation": _fixed(row.val_loss, 4)})
    yield "accuracy", _named({"validation": _fixed(row.val_accuracy, 3), "epochs": _fixed(row.num_epochs, 0)})
    yield "machine", _machine(vars(row))
    names = [f"{name}/" if (run_dir / name).is_dir() else name for name in FILES if (run_dir / name).exists()]
    yield "files", " ".join([f"{run_dir}:", *names]) if names else f"{run_dir}"


def _named(words: dict[str, str]) -> str:
    return ", ".join(f"{name} {word}" for name, word in words.items())


def _compiled(row: Row) -> dict[str, str]:
    counts = {
        "graphs": row.num_graphs,
        "breaks": row.num_graph_breaks,
        "recompiles": row.num_recompiles,
        "CUDA graphs": row.num_cudagraphs,
    }
    return {name: _fixed(count, 0) for name, count in counts.items()}


def _steps(row: Row) -> str:
    times = {"p50": row.step_time_ms_p50, "p90": row.step_time_ms_p90, "p99": row.step_time_ms_p99}
    digits = _decimals(times.values(), 4)
    words = {name: "-" if value is None else f"{_fixed(value, digits)} ms" for name, value in times.items()}
    return _named(words | {"steady": f"{_fixed(row.num_steady_steps, 0)} of {_fixed(row.num_steps, 0)}"})


def _peaks(row: Row) -> dict[str, int | None]:
    if row.accelerator == "cpu":  # where all three are the same figure
        return {"resident": row.peak_device_bytes}
    return {"allocated": row.peak_allocated_bytes, "reserved": row.peak_reserved_bytes, "device": row.peak_device_bytes}


def _trained(of: Row | Group) -> str:
    processes = f", {of.world_size} processes" if of.world_size > 1 else ""
    return f"{of.model} on {of.data}, batch {_fixed(of.batch_size, 0)}{processes}"


def _work(group: Group) -> str:
    return _clean(", ".join([_trained(group), *filter(None, [group.precision]), *group.overrides]))


def _machine(machine: Mapping[str, Any]) -> str:
    packages = ("torch", "triton", "CUDA", "Python", "lightning")
    versions = {name: machine[f"{name.lower()}_version"] for name in packages}
    known = [f"{name} {version}" for name, version in versions.items() if version]
    devices = [f"{machine['num_devices']} x {machine['device_name']}"] if machine["device_name"] else []
    return _clean(", ".join([*devices, *known])) or "-"


def _note(group: Group) -> str | None:
    once = [setting.label for setting in group.settings if setting.num_repeats == 1]
    if not once:
        return None
    who = "every setting" if len(once) == len(group.settings) else "; ".join(once)
    return _clean(f"One run only of {who}: its spread is unknown. hydra.launcher.repeats=2 or more shows it.")


def _dropped_title(comparison: Comparison) -> str:
    return f"Dropped: {_runs(sum(len(drop.rows) for drop in comparison.dropped))}"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _terminal() -> Console:
    """Standard output; wide enough for a table's columns where it is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _middle(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median


def _range(spread: Spread | None, decimals: int) -> str:
    """The lowest and the highest of several repeats; "" where they are one value."""
    if spread is None or spread.low == spread.high:
        return ""
    return f"{_fixed(spread.low, decimals)}-{_fixed(spread.high, decimals)}"


def _times(speedup: Spread | None) -> str:
    return "no eager row" if speedup is None else f"{_fixed(speedup.median, 2)}x"


def _fixed(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:,.{decimals}f}"


def _decimals(values: Iterable[float | None], digits: int) -> int:
    """The decimals that show the smallest value to so many digits: 3 at most, and the same for a whole column."""
    smallest = min((value for value in values if value), default=1.0)
    return min(max(digits - 1 - math.floor(math.log10(smallest)), 0), 3)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{_fixed(value, _decimals([value], 3))} s"


def _percent(frac: float | None) -> str:
    return "-" if frac is None else f"{100 * frac:.1f} %"


def _bytes(value: int | None) -> str:
    unit, (in_unit,) = _memory([value])
    return "-" if in_unit is None else f"{_fixed(in_unit, _decimals([in_unit], 3))} {unit}"


def _memory(values: Iterable[int | None]) -> tuple[str, list[float | None]]:
    """One unit for all, GiB where the largest has one, and the values in it."""
    values = list(values)
    unit, size = ("GiB", 2**30) if max((v or 0 for v in values), default=0) >= 2**30 else ("MiB", 2**20)
    return unit, [None if value is None else value / size for value in values]


def _clean(text: str) -> str:
    """One line that a terminal can show: no escape sequences, no line breaks."""
    return "".join(c if c.isprintable() else " " for c in re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text))


def _short(text: str) -> str:
    text = _clean(text)
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", _clean(text))
