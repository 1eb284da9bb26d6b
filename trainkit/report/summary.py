"""The summary of one run in the terminal: a line for each epoch, a table at its end.

Names, reasons and errors come from users and logs: they are printed as they are, never read as markup.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainkit.analysis.dropping import step_time_ms, why_dropped
from trainkit.formatting import clean, fixed, percent, scientific, seconds, short, size, time_decimals
from trainkit.report.cascades import deadline_labels, expected_ms, stage_label
from trainkit.report.compiler_facts import (
    Cause,
    compiled_regions,
    graph_break_causes,
    graph_sizes,
    recompile_causes,
    skipped_steps,
    tuned_kernels,
    uncompiled_steps,
)
from trainkit.report.labels import counted_noun, machine_label, step_noun, work_label
from trainkit.report.terminal import terminal
from trainkit.results.columns import Section, headings
from trainkit.results.epoch import EpochRecord
from trainkit.results.facts import ShapeLatency, Stage
from trainkit.results.metric import metric_of
from trainkit.results.row import Row

FILES = ("row.json", "package.pt2", "epochs.jsonl", "checkpoints", "wandb", "csv")
MAX_CAUSES = 8
MAX_SHAPES = 12

Line = tuple[str, str]  # a title, "" if it is the one of the line before, and a text


def print_epoch(record: EpochRecord, max_epochs: int | None, console: Console | None = None) -> None:
    """Print one line: training seconds + validation seconds, and how many of both went into compiling."""
    number = f"{record.epoch + 1}"
    if max_epochs is not None and max_epochs > 0:
        number = f"{number:>{len(str(max_epochs))}}/{max_epochs}"
    losses = f"loss {fixed(record.train_loss, 4)}  val {fixed(record.val_loss, 4)}"
    metric = metric_of(record)
    if metric is not None:
        losses += f"  {metric.name} {fixed(metric.value, 3)}"
    line = f"epoch {number}  {losses}  {seconds(record.train_time_s)}"
    if record.val_time_s:
        line += f" + {seconds(record.val_time_s)}"
    if record.compile_time_s:
        line += f" ({seconds(record.compile_time_s)} compile)"
    (console or terminal()).print(Text(line), soft_wrap=True)


def job_outcome(row: Row) -> str:
    """One line about a finished job of a sweep: its step time, or the reason for which a comparison drops its row."""
    digits = time_decimals([step_time_ms(row)], 4)
    measured = f"{step_noun(row)} {fixed(step_time_ms(row), digits)} ms, compile {seconds(row.compile_time_s)}"
    return short(why_dropped(row) or f"{row.status}: {measured}")


def print_run(row: Row, run_dir: Path | str, console: Console | None = None) -> None:
    """Print the settings, measurements and files of a run, and the reason if a comparison would drop its row."""
    console = console or terminal()
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for title, text in _run_lines(row, Path(run_dir)):
        table.add_row(title, Text(clean(text)))
    console.print(table)
    reason = why_dropped(row)
    if reason:
        style = "red"
        if row.status == "ok":
            style = "yellow"
        console.print(Text(short(reason), style=style))


def _run_lines(row: Row, run_dir: Path) -> Iterator[Line]:
    """The lines of a run's summary. "-" stands for a figure that was not measured."""
    yield "run", f"{row.run_id}: {row.status}"
    requested = [work_label(row), row.compile_mode, row.precision, f"seed {row.seed}"]
    if row.engine != "network":
        requested.insert(1, row.engine)
    yield "requested", ", ".join(requested)
    yield "overrides", " ".join(row.overrides) or "-"
    yield "effective", row.effective_mode or "-"
    yield from _compile_lines(row)
    yield from _step_lines(row)
    if row.kind == "forward":
        yield from _call_lines(row)
    else:
        yield from _training_lines(row)
    yield "memory", _listed(_memory_peaks(row))
    if row.check_passed is not None or row.check_reason is not None:
        yield "check", _check_result(row)
    if row.check_ranks_reason is not None or row.check_gradients_agree is not None:
        yield "ranks", row.check_ranks_reason or "the same gradients and graphs on all ranks"
    yield "machine", machine_label(vars(row))
    yield "files", _files(run_dir)


def _files(run_dir: Path) -> str:
    names = []
    for name in FILES:
        path = run_dir / name
        if path.is_dir():
            names.append(f"{name}/")
        elif path.exists():
            names.append(name)
    if not names:
        return str(run_dir)
    return f"{run_dir}: {' '.join(names)}"


def _compile_lines(row: Row) -> Iterator[Line]:
    texts = {
        "time": seconds(row.compile_time_s),
        "graphs": fixed(row.num_graphs, 0),
        "breaks": fixed(row.num_graph_breaks, 0),
        "recompiles": fixed(row.num_recompiles, 0),
        "CUDA graphs": fixed(row.num_cudagraphs, 0),
    }
    causes = recompile_causes(row)
    defects = [cause for cause in causes if not cause.is_validation]
    if len(defects) < len(causes):
        texts["recompiles"] += f" ({len(causes) - len(defects)} for validation)"
    yield "compile", _listed(texts)
    if row.compile_time_s:
        phases = [f"start-up {seconds(row.compile_startup_s)} apart"]
        phases += _phase_shares(row, row.compile_time_s)
        yield "", ", ".join(phases)
    if row.graph_sizes:
        yield "graphs", graph_sizes(row.graph_sizes)
    if row.tuned_kernels:
        yield "autotuned", tuned_kernels(row.tuned_kernels)
    if row.compiled_parts:
        yield "regions", compiled_regions(row)
    yield from _break_lines(graph_break_causes(row))
    yield from _recompile_lines(defects)
    hits, misses = fixed(row.cache_hits, 0), fixed(row.cache_misses, 0)
    yield "cache", _listed({"found": row.cache_found or "-", "hits": hits, "misses": misses})


def _phase_shares(row: Row, compile_time_s: float) -> Iterator[str]:
    """Seconds and share of each phase of compiling. Start-up is not part of the compile time."""
    for column, name in headings(Row, Section.COMPILE_TIME).items():
        phase_s = getattr(row, column)
        if column != "compile_startup_s" and phase_s:
            yield f"{name} {seconds(phase_s)} ({percent(phase_s / compile_time_s)})"


def _break_lines(causes: list[Cause]) -> Iterator[Line]:
    """Two lines for each of the first causes: torch's reason and the remedy."""
    title = "graph breaks"
    for cause in causes[:MAX_CAUSES]:
        yield title, short(cause.reason)
        yield "", f"{cause.remedy.cause}: {cause.remedy.fix}"
        title = ""
    if len(causes) > MAX_CAUSES:
        yield "", f"{len(causes) - MAX_CAUSES} more, in row.json"


def _recompile_lines(causes: list[Cause]) -> Iterator[Line]:
    """A line for each of the slowest recompiles and one for the others, then each remedy once."""
    slowest_first = sorted(causes, key=lambda cause: cause.time_s or 0.0, reverse=True)
    title = "recompiles"
    for cause in slowest_first[:MAX_CAUSES]:
        yield title, f"{seconds(cause.time_s)}: {short(cause.reason)}"
        title = ""
    faster = slowest_first[MAX_CAUSES:]
    if faster:
        time_s = sum(cause.time_s or 0.0 for cause in faster)
        yield "", f"{seconds(time_s)}: {len(faster)} more, in row.json"
    for remedy in dict.fromkeys(cause.remedy for cause in slowest_first):
        yield "", f"{remedy.cause}: {remedy.fix}"


def _step_lines(row: Row) -> Iterator[Line]:
    times_ms = {"p50": row.step_time_ms_p50, "p90": row.step_time_ms_p90, "p99": row.step_time_ms_p99}
    compiling, warmup = fixed(row.num_compiling_steps, 0), fixed(row.num_warmup_steps, 0)
    steady, total = fixed(row.num_steady_steps, 0), fixed(row.num_steps, 0)
    counts = f"{compiling} compiling, {warmup} warm-up, {steady} steady of {total} {counted_noun(row)}s"
    yield step_noun(row), f"{_milliseconds(times_ms, 4)}; {counts}"
    for text in (uncompiled_steps(row), skipped_steps(row)):
        if text:
            yield "", text
    if row.forward_time_ms_p50 is not None:
        parts_ms = {
            "forward": row.forward_time_ms_p50,
            "backward": row.backward_time_ms_p50,
            "optimizer": row.optimizer_time_ms_p50,
        }
        yield "", f"{_milliseconds(parts_ms, 3)} (profiling epoch)"


def _training_lines(row: Row) -> Iterator[Line]:
    yield "epoch", _listed({"train": seconds(row.epoch_train_time_s), "validation": seconds(row.epoch_val_time_s)})
    yield "speed", _listed({"samples/s": fixed(row.samples_per_s, 0), "waiting for data": percent(row.data_wait_frac)})
    yield "loss", _listed({"train": fixed(row.train_loss, 4), "validation": fixed(row.val_loss, 4)})
    metric = metric_of(row)
    if metric is None:
        yield "epochs", fixed(row.num_epochs, 0)
    else:
        yield metric.name, _listed({"validation": fixed(metric.value, 3), "epochs": fixed(row.num_epochs, 0)})


def _call_lines(row: Row) -> Iterator[Line]:
    title = "deadline"
    for text in deadline_labels(row):
        yield title, text
        title = ""
    title = "cascade"
    for stage in row.chain or []:
        yield title, _stage_line(stage, row)
        title = ""
    yield from _shape_lines(row.latency_by_shape or [])
    if row.package_bytes is not None:
        yield "program", _program(row)
    yield "speed", _listed({"samples/s": fixed(row.samples_per_s, 0)})
    yield "accuracy", fixed(row.val_accuracy, 3)


def _program(row: Row) -> str:
    texts = {
        "torch.export": seconds(row.export_time_s),
        "load": seconds(row.package_load_s),
        "first answer": seconds(row.first_answer_s),
        "size": size(row.package_bytes),
    }
    return _listed(texts)


def _stage_line(stage: Stage, row: Row) -> str:
    compiled = f"effective {stage.effective_mode or '-'}, graphs {fixed(stage.num_graphs, 0)}"
    latency = f"expected {expected_ms(stage)} ms"
    if stage.num_calls:
        latency = _latency_text(stage)
    if stage.accuracy is not None:
        latency = f"{latency}; accuracy {fixed(stage.accuracy, 3)}"
    return f"{percent(stage.call_frac)} {stage_label(stage, row)}: {compiled}; {latency}"


def _shape_lines(latencies: Iterable[ShapeLatency]) -> Iterator[Line]:
    """A line for each of the most frequent shapes, and one for the others."""
    most_frequent_first = sorted(latencies, key=lambda latency: latency.num_calls, reverse=True)
    title = "shapes"
    for latency in most_frequent_first[:MAX_SHAPES]:
        yield title, f"{latency.shape}: {_latency_text(latency)}; {fixed(latency.num_calls, 0)} calls"
        title = ""
    if len(most_frequent_first) > MAX_SHAPES:
        yield "", f"{len(most_frequent_first) - MAX_SHAPES} more, in row.json"


def _latency_text(measured: ShapeLatency | Stage) -> str:
    times_ms = {"p50": measured.time_ms_p50, "p90": measured.time_ms_p90, "p99": measured.time_ms_p99}
    return _milliseconds(times_ms, 4)


def _memory_peaks(row: Row) -> dict[str, str]:
    device = size(row.peak_device_bytes)
    if row.accelerator == "cpu":  # its three peaks are the same figure
        return {"resident": device}
    return {"allocated": size(row.peak_allocated_bytes), "reserved": size(row.peak_reserved_bytes), "device": device}


def _check_result(row: Row) -> str:
    if row.check_passed is None:
        return f"unknown: {row.check_reason}"
    differences = {}
    for name in ("loss", "output", "grad", "param"):
        difference = getattr(row, f"check_{name}_rel_diff")
        eager_difference = getattr(row, f"check_eager_{name}_rel_diff")
        if difference is not None and eager_difference is not None:
            differences[name] = f"{scientific(difference)} (eager {scientific(eager_difference)})"
    result = "differs from eager"
    if row.check_passed:
        result = "same as eager"
    return f"{result}: {_listed(differences)} off float64"


def _milliseconds(times_ms: Mapping[str, float | None], num_digits: int) -> str:
    digits = time_decimals(times_ms.values(), num_digits)
    texts = {}
    for name, time_ms in times_ms.items():
        texts[name] = fixed(time_ms, digits)
        if time_ms is not None:
            texts[name] += " ms"
    return _listed(texts)


def _listed(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in texts.items())
