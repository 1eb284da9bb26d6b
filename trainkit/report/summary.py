"""What one run says in the terminal: of each epoch, and of the whole at its end.

Names, reasons and errors came from users and logs: they are printed as they are, never read as markup.
"""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainkit.analysis.dropping import step_time_ms, why_dropped
from trainkit.formatting import clean, decimals, fixed, percent, scientific, seconds, short, size
from trainkit.report.labels import (
    COMPILE_PARTS,
    compiled_parts,
    expected,
    graph_breaks,
    link_of,
    machine_of,
    missed,
    recompiles,
    skipped,
    step_of,
    trained_of,
    uncompiled,
)
from trainkit.report.tables import terminal
from trainkit.results.epoch import EpochRecord
from trainkit.results.facts import ShapeLatency, Stage
from trainkit.results.row import Row

FILES = ("row.json", "epochs.jsonl", "checkpoints", "wandb", "csv")
MOST_CAUSES = 8
MOST_SHAPES = 12


def print_epoch(record: EpochRecord, max_epochs: int | None, console: Console | None = None) -> None:
    """Print one line: training seconds + validation seconds, and how many of both went into compiling."""
    number = f"{record.epoch + 1}"
    if max_epochs is not None and max_epochs > 0:
        number = f"{number:>{len(str(max_epochs))}}/{max_epochs}"
    validating = f" + {seconds(record.val_time_s)}" if record.val_time_s else ""
    compiling = f" ({seconds(record.compile_time_s)} compile)" if record.compile_time_s else ""
    worth = f"loss {fixed(record.train_loss, 4)}  val {fixed(record.val_loss, 4)}"
    line = f"epoch {number}  {worth}  accuracy {fixed(record.val_accuracy, 3)}  {seconds(record.train_time_s)}"
    (console or terminal()).print(Text(line + validating + compiling), soft_wrap=True)


def job_outcome(row: Row) -> str:
    """One line on how a job of a sweep ended: what a step takes, or why a comparison will drop the row."""
    digits = decimals([step_time_ms(row)], 4)
    measured = f"{step_of(row)} {fixed(step_time_ms(row), digits)} ms, compile {seconds(row.compile_time_s)}"
    return short(why_dropped(row) or f"{row.status}: {measured}")


def print_run(row: Row, run_dir: Path | str, console: Console | None = None) -> None:
    """Print what was asked and got, what it cost and was worth, where its files lie, and what went wrong."""
    console = console or terminal()
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, words in _run_lines(row, Path(run_dir)):
        table.add_row(name, Text(clean(words)))
    console.print(table)
    if reason := why_dropped(row):
        console.print(Text(short(reason), style="yellow" if row.status == "ok" else "red"))


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
        got = f"got {link.effective_mode or '-'}, graphs {fixed(link.num_graphs, 0)}"
        took = _latency(link) if link.num_calls else f"expected {expected(link)} ms"
        yield "" if number else "chain", f"{percent(link.call_frac)} {link_of(link, row)}: {got}; {took}"
    shapes = sorted(row.latency_by_shape or [], key=lambda latency: -latency.num_calls)
    for number, latency in enumerate(shapes[:MOST_SHAPES]):
        calls = f"{fixed(latency.num_calls, 0)} calls"
        yield "" if number else "shapes", f"{latency.shape}: {_latency(latency)}; {calls}"
    if others := shapes[MOST_SHAPES:]:
        yield "", f"{len(others)} more, in row.json"
    yield "speed", _named({"samples/s": fixed(row.samples_per_s, 0)})
    yield "accuracy", fixed(row.val_accuracy, 3)


def _latency(measured: ShapeLatency | Stage) -> str:
    times_ms = {"p50": measured.time_ms_p50, "p90": measured.time_ms_p90, "p99": measured.time_ms_p99}
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
        yield "", f"{told.cause}: {told.fix}"
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
        yield "", f"{told.cause}: {told.fix}"


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
