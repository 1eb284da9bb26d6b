"""What a run measured, in five lines, and the command to type next."""

import shutil
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainkit.formatting import clean, fixed, percent, seconds, shell_command, size, time_decimals
from trainkit.report.labels import ENOUGH_REPEATS, counted, is_busy
from trainkit.report.summary import Line
from trainkit.report.terminal import terminal
from trainkit.results.metric import metric_of
from trainkit.results.row import Row


def print_outcome(row: Row, train: str, diagnose: str, console: Console | None = None) -> None:
    """Print five lines about a run that ended well, and the next command; nothing of a job of a sweep.

    `train` and `diagnose` start these commands.
    """
    if row.status != "ok" or row.sweep_id is not None:
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for title, text in outcome_lines(row):
        table.add_row(title, Text(clean(text)))
    console = console or terminal()
    console.print()
    console.print(table)
    first = "install g++ or clang++, which torch.compile needs on a CPU; then " if lacks_compiler(row) else ""
    console.print(Text(f"next: {first}{next_command(row, train, diagnose)}"), soft_wrap=True)


def outcome_lines(row: Row) -> Iterator[Line]:
    """The time of a step, the cost of compiling, the quality, the memory, and the machine."""
    digits = time_decimals([row.step_time_ms_p50], 4)
    step = (
        f"{fixed(row.step_time_ms_p50, digits)} ms, the median of {counted(row.num_steady_steps or 0, 'steady step')}"
    )
    yield "step time", f"{step}; {fixed(row.samples_per_s, 0)} samples a second"
    yield "compiling", _compiling_text(row)
    yield "quality", _quality_text(row)
    yield "memory", f"{size(row.peak_device_bytes)} at the peak of the steady steps"
    yield "machine", _machine_text(row)


def _machine_text(row: Row) -> str:
    text = f"{row.num_devices} x {row.device_name}, torch {row.torch_version}"
    if is_busy(row):
        text += f"; busy: CPU load of others {percent(row.foreign_cpu_frac)}"
    return text


def _compiling_text(row: Row) -> str:
    if row.compile_mode == "eager":
        return "nothing is compiled (compile.mode=eager)"
    graphs = counted(row.num_graphs or 0, "graph")
    breaks = counted(row.num_graph_breaks or 0, "graph break")
    text = f"{seconds(row.compile_time_s)} for {graphs} with {breaks}"
    if row.compile_startup_s:
        text += f"; torch's start-up of {seconds(row.compile_startup_s)} is apart"
    return text


def _quality_text(row: Row) -> str:
    text = f"validation loss {fixed(row.val_loss, 4)}"
    metric = metric_of(row)
    if metric is not None:
        text += f", {metric.name} {fixed(metric.value, 3)}"
    if not row.num_epochs:  # `max_steps` ended the first one
        return f"{text}, after {counted(row.num_steps, 'step')}"
    text += f", after {counted(row.num_epochs, 'epoch')}"
    if row.epoch_train_time_s is not None:  # of an epoch without a compile
        text += f" of {seconds(row.epoch_train_time_s)}"
    return text


def lacks_compiler(row: Row) -> bool:
    """Whether inductor would find no C++ compiler. Its own search takes longer than an eager run of some steps: it
    imports inductor."""
    return row.accelerator == "cpu" and not any(map(shutil.which, ("g++", "clang++")))


def next_command(row: Row, train: str, diagnose: str) -> str:
    """The command that answers the next question: what breaks the graphs, or which mode is faster than eager, with as
    many processes."""
    if row.num_graph_breaks:
        return shell_command([*diagnose.split(), *row.overrides])
    settings = [override for override in row.overrides if not override.startswith("compile.mode=")]
    modes = "compile.mode=eager,default"
    if row.accelerator == "gpu":
        modes += ",reduce-overhead"
    launched = [f"hydra.launcher.repeats={ENOUGH_REPEATS}"]
    if row.world_size > 1:
        launched.append(f"hydra.launcher.nproc_per_node={row.world_size}")
    return shell_command([*train.split(), "-m", *settings, modes, *launched])
