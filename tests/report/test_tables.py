"""What people read: rich output and Markdown captured and read back, and the script as a process of its own."""

import re
import subprocess
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests import forked
from tests.report.test_page import diagnosis
from tests.sweeps import BREAKS, gpu_sweep
from trainkit.analysis.candidates import BreakEven, Candidate, Spread
from trainkit.analysis.comparison import Comparison, Group, compare
from trainkit.analysis.regressions import find_changes
from trainkit.diagnosis.remedies.graph_breaks import remedy_for_break
from trainkit.diagnosis.remedies.recompiles import CHANGING_SIZE
from trainkit.formatting import duration, percent
from trainkit.report.figures import ratio_text
from trainkit.report.summary import job_outcome, print_epoch, print_run
from trainkit.report.tables import (
    markdown_comparison,
    print_changes,
    print_comparison,
    print_findings,
    print_measurements,
)
from trainkit.report.verdicts import recommendation, verdict
from trainkit.results.epoch import EpochRecord
from trainkit.results.files import append_epoch, read_epochs, write_row
from trainkit.results.row import Row
from trainkit.stats import Estimate, Ratio

ROOT = Path(__file__).parents[2]
GIB, MIB = 2**30, 2**20
ROW = Row(
    run_id="sweep/000-eager",
    status="ok",
    model="resnet18",
    data="synthetic",
    batch_size=64,
    compile_mode="eager",
    precision="bf16-mixed",
    overrides=["model=resnet18", "optimizer.lr=0.1"],
    effective_mode="eager",
    num_graphs=0,
    compile_time_s=0.0,
    num_steps=1500,
    num_steady_steps=1460,
    step_time_ms_p50=34.104,
    step_time_ms_p90=34.9,
    step_time_ms_p99=40.0,
    epoch_train_time_s=12.34,
    epoch_val_time_s=0.512,
    samples_per_s=1876.4,
    data_wait_frac=0.013,
    peak_allocated_bytes=int(5.99 * GIB),
    peak_reserved_bytes=int(6.59 * GIB),
    peak_device_bytes=int(7.79 * GIB),
    num_epochs=10,
    train_loss=0.01234,
    val_loss=0.0456,
    val_accuracy=0.97218,
    device_name="NVIDIA H100",
    num_devices=1,
    torch_version="2.11.0",
    triton_version="3.6.0",
    cuda_version="13.0",
    python_version="3.12.3",
    lightning_version="2.6.6",
)
EPOCH = EpochRecord(
    epoch=2,
    train_time_s=12.84,
    val_time_s=0.05,
    compile_time_s=12.3,
    num_steps=50,
    num_samples=3200,
    step_time_ms_p50=None,
    samples_per_s=None,
    peak_allocated_bytes=GIB,
    peak_reserved_bytes=GIB,
    peak_device_bytes=GIB,
    train_loss=0.51234,
    val_loss=None,
    val_accuracy=0.913,
)


def row(mode: str, step_ms: float | None, **fields) -> Row:
    return replace(ROW, **{"compile_mode": mode, "effective_mode": mode, "step_time_ms_p50": step_ms, **fields})


def five_modes() -> list[Row]:
    """Two repeats of each mode; of max-autotune one ended by the time limit; reduce-overhead without CUDA graphs."""
    times = {"eager": 34.0, "default": 31.0, "max-autotune": 22.0, "max-autotune-no-cudagraphs": 27.0}
    rows = [row(mode, ms + n / 10, repeat=n) for n in range(2) for mode, ms in times.items()]
    rows[2] = replace(rows[2], status="timeout", error="stopped after 600 s", step_time_ms_p50=None)
    skipped = {"effective_mode": "default", "effective_mode_reason": "CUDA graphs need a CUDA device"}
    return rows + [row("reduce-overhead", 30.5, run_id=f"sweep/{n}", **skipped) for n in (5, 6)]


def shown(print_it, *args, width: int = 120) -> str:
    file = StringIO()
    print_it(*args, console=Console(file=file, width=width))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())  # rich fills up to the width


def line_of(text: str, start: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return line


# a comparison


def test_a_setting_is_a_row_of_numbers_with_ranges_below():
    lines = shown(print_comparison, compare(five_modes())).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("max-autotune-no-cudagraphs"))
    assert lines[at].split() == ["max-autotune-no-cudagraphs", "1.26x", "0.0", "27.05", "12.3", "5.99", "0.972", "2"]
    assert lines[at + 1].split() == ["1.25-1.27", "27.00-27.10"]


def test_the_head_names_the_work_the_machine_and_the_units():
    lines = [line.strip() for line in shown(print_comparison, compare(five_modes())).splitlines()]
    assert lines[0] == "resnet18 on synthetic, batch 64, bf16-mixed, optimizer.lr=0.1"
    assert lines[1] == "1 x NVIDIA H100, torch 2.11.0, triton 3.6.0, CUDA 13.0, Python 3.12.3, lightning 2.6.6"
    assert lines[2].split() == ["speed-up", "compile", "step", "epoch", "memory", "accuracy", "runs"]
    assert lines[3].split() == ["setting", "over", "eager", "s", "ms", "s", "GiB"]


def test_the_fastest_setting_is_on_top():
    text = shown(print_comparison, compare(five_modes()))
    settings = [line.split()[0] for line in text.split("Dropped")[0].splitlines() if "x  " in line]
    assert settings == ["max-autotune", "max-autotune-no-cudagraphs", "default", "eager"]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_longer_than_the_terminal_and_no_number_is_cut(width):
    rows = [*five_modes(), row("max-autotune-no-cudagraphs", 1234.5, compile_dynamic=True, val_accuracy=0.5)]
    text = shown(print_comparison, compare(rows), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "1,234.50" in text
    assert "22.10" in text
    assert "..." not in text
    assert "…" not in text


def test_numbers_stay_whole_where_the_terminal_is_too_narrow():
    text = shown(print_comparison, compare(five_modes()), width=50)
    assert "27.00-27.10" in text
    assert line_of(text, "eager").split() == ["eager", "1.00x", "0.0", "34.05", "12.3", "5.99", "0.972", "2"]


def test_numbers_are_flush_right_with_the_same_decimals():
    rows = [row("eager", 134.0), row("default", 9.5)]
    text = shown(print_comparison, compare(rows))
    eager, default = line_of(text, "eager"), line_of(text, "default")
    assert eager.index("134.000") + len("134.000") == default.index("9.500") + len("9.500")


def test_a_long_label_breaks_at_its_hyphens():
    text = shown(print_comparison, compare(five_modes()), width=80)
    assert line_of(text.split("Dropped")[0], "max-autotune-no-").split()[0] == "max-autotune-no-"
    assert line_of(text, "cudagraphs").startswith("cudagraphs ")


def test_memory_below_a_gib_is_in_mib():
    text = shown(print_comparison, compare([row("eager", 34.0, peak_allocated_bytes=523 * MIB)]))
    assert "MiB" in text
    assert "GiB" not in text
    assert " 523 " in line_of(text, "eager")


def test_what_was_not_measured_is_a_dash():
    unmeasured = {
        "val_accuracy": None,
        "peak_allocated_bytes": None,
        "compile_time_s": None,
        "epoch_train_time_s": None,
    }
    text = shown(print_comparison, compare([row("eager", 34.0, **unmeasured)]))
    assert line_of(text, "eager").split() == ["eager", "1.00x", "-", "34.00", "-", "-", "1"]
    assert "accuracy" not in text  # nobody has one
    assert "None" not in text


def test_a_missing_eager_row_is_said():
    assert "no eager row" in line_of(shown(print_comparison, compare([row("default", 5.0)])), "default")


def test_one_run_says_that_its_spread_is_unknown():
    both = shown(print_comparison, compare([row("eager", 2.0), row("default", 1.0)]))
    assert "One run only of every setting: its spread is unknown" in both
    one = shown(print_comparison, compare([row("eager", 2.0), row("eager", 2.1), row("default", 1.0)]))
    assert "One run only of default: its spread is unknown" in one
    none = shown(print_comparison, compare([row("eager", 2.0), row("eager", 2.1)]))
    assert "spread" not in none


def test_steps_that_the_scaler_skipped_are_said():
    fp16 = [replace(row("eager", 2.0, run_id=f"r{skipped}"), num_skipped_steps=skipped) for skipped in (0, 3)]
    text = " ".join(shown(print_comparison, compare(fp16)).split())
    assert "eager: 3 of 1,500 steps skipped: a gradient overflowed fp16, and no parameter moved; the learning" in text
    assert "skipped" not in shown(print_comparison, compare([fp16[0], row("eager", 2.0)]))
    assert "3 of 1,500 steps skipped: " in shown(print_run, fp16[1], "nowhere")
    assert "skipped" not in shown(print_run, fp16[0], "nowhere")


@pytest.mark.parametrize(
    ("torch", "found", "autotune_s", "said"),
    [
        ("2.11.0+cu130", "warm", 64.0, True),
        ("2.11.0+cu130", "warm", 20.0, False),
        ("2.11.0+cu130", "cold", 64.0, False),
        ("2.12.0+cu130", "warm", 64.0, False),
    ],
)
def test_a_torch_that_tunes_again_with_a_warm_cache_is_said(torch, found, autotune_s, said):
    cost = {"compile_time_s": 67.0, "compile_autotune_s": autotune_s, "cache_found": found}
    rows = [row("eager", 2.0, torch_version=torch), row("max-autotune", 1.0, torch_version=torch, **cost)]
    text = " ".join(shown(print_comparison, compare(rows)).split())
    assert ("kernels are tried out again, for much of the compile time (95.5 % of max-autotune): torch" in text) == said


def test_what_was_dropped_is_listed_with_reason_figures_and_place():
    text = shown(print_comparison, compare(five_modes())).split("Dropped: 3 runs")[1]
    assert line_of(text, "max-autotune ").split(maxsplit=3) == [
        "max-autotune",
        "1",
        "-",
        "timeout: stopped after 600 s",
    ]
    asked_and_got = line_of(text, "reduce-overhead").split(maxsplit=3)
    assert asked_and_got[1:3] == ["2", "30.50"]
    assert asked_and_got[3] == "requested reduce-overhead, effective default: CUDA graphs need a CUDA device"
    assert "sweep/5, sweep/6" in text


def test_nothing_measured_is_said_and_the_reason_shown():
    text = shown(print_comparison, compare([row("default", None, status="failed", error="no such file")]))
    assert "Nothing to compare: no run was measured." in text
    assert "failed: no such file" in text
    assert "Nothing to compare" in shown(print_comparison, Comparison((), ()))


def test_names_and_errors_are_no_markup():
    """Neither rich's, nor a terminal's escape sequences."""
    rows = [
        row("eager", 2.0, model="[red]net[/red]", overrides=["a=[bold]b[/bold]"]),
        row("eager", 2.0, model="[red]net[/red]", overrides=["a=[/]"]),
        row("default", None, status="failed", error="\x1b[31mbad\x1b[0m\x07 [/nope] :boom:"),
    ]
    text = shown(print_comparison, compare(rows))
    assert "[red]net[/red] on synthetic" in text
    assert "a=[bold]b[/bold]" in text
    assert "a=[/]" in text
    assert "failed: bad  [/nope] :boom:" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_reason_of_pages_is_cut_short():
    text = shown(print_comparison, compare([row("default", None, status="failed", error="word " * 1000)]))
    assert "..." in text
    assert len(text) < 1000


# what it means

ROUNDED = BreakEven(num_steps=4387, num_epochs=7.02, minutes=2.95)


def judged(num_planned_steps: int | None = None, **fields) -> tuple[Candidate, Group]:
    """A compiled setting of a group of three repeats each, with other figures, and its group."""
    (group,) = compare(gpu_sweep(), num_planned_steps).groups
    setting = replace(group.candidates[1], **{"speedup": Ratio(1.449, 1.431, 1.467, 0.012, True), **fields})
    return setting, replace(group, candidates=(group.candidates[0], setting, *group.candidates[2:]))


def test_a_verdict_says_gain_cost_and_when_it_pays():
    setting, group = judged(compile_time_s=Spread(46.2, 46.0, 47.0), break_even=ROUNDED)
    gain = "reduce-overhead: 1.45x [1.43, 1.47] over eager"
    words = f"{gain}, +46 s compile, pays off after 4,400 steps (7 epochs, 3.0 min)"
    assert verdict(setting, group) == words
    assert verdict(setting, replace(group, num_planned_steps=10_000)) == words
    short_run = replace(group, num_planned_steps=2_000)
    assert verdict(setting, short_run) == f"{words}; for a run of 2,000 steps stay with eager"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"speedup": Ratio(1.008, 0.99, 1.02, 0.012, False)},
            "no measurable difference from eager (1.01x [0.99, 1.02], ",
        ),
        ({"speedup": Ratio(1.008, 0.99, 1.02, 0.012, False)}, "noise floor 1.2 %)"),
        ({"speedup": Ratio(0.74, 0.72, 0.76, 0.012, True)}, "reduce-overhead: 0.74x [0.72, 0.76]: slower than eager"),
        ({"speedup": Ratio(1.3)}, "reduce-overhead: unknown: 1 run of eager (1.30x over eager)"),
        ({"speedup": None}, "reduce-overhead: no eager row to compare with"),
        ({"compile_time_s": None}, "1.45x [1.43, 1.47] over eager, compile time unknown"),
        ({"accuracy_matches": False}, "; accuracy 0.910 differs from eager's by more than chance"),
    ],
)
def test_a_verdict_says_what_is_unknown_and_what_speaks_against_a_setting(fields, words):
    assert words in verdict(*judged(break_even=None, **fields))


def test_a_verdict_of_one_repeat_is_unknown():
    (group,) = compare(gpu_sweep(1)).groups
    assert verdict(group.candidates[0], group) == "max-autotune: unknown: 1 run (1.52x over eager)"
    assert recommendation(group) == "No advice: too few runs."


def test_the_advice_without_planned_steps_names_what_pays_in_the_end_and_what_pays_first():
    (group,) = compare(gpu_sweep()).groups
    assert recommendation(group) == (
        "Train with max-autotune: 1.50x [1.48, 1.53] over eager; it pays off after 9,500 steps (15 epochs, 5.4 min). "
        "For shorter runs: reduce-overhead pays off first, after 2,600 steps (4 epochs, 88 s)."
    )


@pytest.mark.parametrize(
    ("num_steps", "words"),
    [
        (2_000, "Stay with eager for a run of 2,000 steps: max-autotune has faster steps, but compiling does not"),
        (
            20_000,
            "Train with reduce-overhead for a run of 20,000 steps: 1.45x [1.42, 1.47] over eager, 8.3 min in all; ",
        ),
        (10**6, "Train with max-autotune for a run of 1,000,000 steps: 1.50x [1.48, 1.53] over eager, 6.3 h in all; "),
    ],
)
def test_the_advice_for_planned_steps_is_what_needs_the_least_time(num_steps, words):
    (group,) = compare(gpu_sweep(), num_steps).groups
    assert recommendation(group).startswith(words)


def test_the_advice_where_nothing_is_better_or_nothing_can_be_said():
    alike = [
        replace(row, compile_mode=mode, effective_mode=mode) for mode in ("eager", "default") for row in slow_rows()
    ]
    (group,) = compare(alike).groups
    assert recommendation(group) == "Stay with eager: no setting is measurably faster."
    (eager,) = compare(slow_rows()).groups
    assert recommendation(eager) == "No advice: there is nothing to compare eager with."
    (compiled,) = compare(alike[3:]).groups
    assert recommendation(compiled) == "No advice: eager was not measured."


def slow_rows() -> list[Row]:
    return [row("eager", ms, repeat=n) for n, ms in enumerate((2.0, 2.1, 2.2))]


def test_the_advice_and_a_verdict_for_each_setting_stand_below_the_table():
    lines = [line.strip() for line in shown(print_comparison, compare(gpu_sweep()), width=200).splitlines()]
    at = next(n for n, line in enumerate(lines) if line.startswith("Train with"))
    assert [line.partition(":")[0] for line in lines[at + 1 : at + 6]] == [
        "max-autotune",
        "reduce-overhead",
        "max-autotune-no-cudagraphs",
        "default",
        "eager",
    ]
    text = markdown_comparison(compare(gpu_sweep()))
    assert "\n**Train with max-autotune: 1.50x \\[1.48, 1.53\\] over eager; " in text
    assert "\n- default: 1.14x \\[1.12, 1.16\\] over eager, +24 s compile" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (duration(0.64), "0.6 s"),
        (duration(119.0), "119 s"),
        (duration(120.0), "2.0 min"),
        (duration(7199.0), "120 min"),
        (duration(36_000.0), "10 h"),
        (percent(0.0123), "1.2 %"),
        (percent(1e5), "1,000+ %"),
        (ratio_text(Ratio(20.0, 1e-9, 1e9)), "20.00x [0.00, 1,000+]"),
        (ratio_text(Ratio(1.0, 1.0, 1.0)), "1.00x"),
        (ratio_text(Ratio(0.72, 0.52, 0.9962, 0.1, measurable=True)), "0.72x [0.52, 0.996]"),
        (ratio_text(Ratio(1.01, 1.00004, 1.02, 0.001, measurable=True)), "1.01x [1.00004, 1.02]"),
        (ratio_text(Ratio(0.99, 0.98, 0.9992, 0.1, measurable=False)), "0.99x [0.98, 1.00]"),
    ],
)
def test_figures_are_said_in_few_digits(words, said):
    assert words == said


def shared_cache(mode: str, cold_s: float, warm_s: float) -> list[Row]:
    """Three runs of a mode as a sweep leaves them: the first finds nothing in the compile cache, the others all."""
    cache = [(cold_s, "cold"), (warm_s, "warm"), (warm_s, "warm")]
    return [
        row(mode, 17.0 + 0.01 * n, repeat=n, compile_time_s=cost, cache_found=found, compile_cache="warm")
        for n, (cost, found) in enumerate(cache)
    ]


def test_a_cold_compile_and_a_warm_one_are_two_costs():
    eager = [row("eager", 34.0 + 0.01 * n, repeat=n) for n in range(3)]
    (group,) = compare([*eager, *shared_cache("default", 17.0, 1.7)]).groups
    text = shown(print_comparison, Comparison((group,), ()))
    assert line_of(text, "default").split()[2] == "17.0"
    assert "warm 1.7" in text
    assert "+17 s compile (1.7 s warm), pays off after 1,100 steps" in " ".join(text.split())
    assert "110 with a warm cache" in " ".join(text.split())
    assert "cache was shared" not in text  # by one compiled setting only
    autotuned = shared_cache("max-autotune", 30.0, 2.0)
    assert "cache was shared" in shown(print_comparison, compare([*eager, *autotuned, *shared_cache("default", 17, 1)]))
    warm = [replace(r, cache_found="warm") for r in shared_cache("default", 1.7, 1.7)]
    assert "| 1.7 (warm) |" in markdown_comparison(compare([*eager, *warm]))
    assert "+1.7 s compile with a warm cache, pays" in markdown_comparison(compare([*eager, *warm]))
    mixed = [replace(warm[0], cache_found="mixed", compile_time_s=9.0), *warm[1:]]
    text = markdown_comparison(compare([*eager, *mixed]))
    assert "| 9.0 (partly warm; warm 1.7) |" in text
    assert "+9.0 s compile with a partly warm cache (1.7 s warm), pays" in text
    assert re.search(r"it pays off after [\d,]+ steps \([^)]*\) with a partly warm cache\.\*\*", text)


# changes


def changed(**factors: float) -> list[Row]:
    """The five modes with the step time or the memory of some multiplied."""
    rows = [r for r in gpu_sweep(5) if r.status == "ok"]
    times = {mode.replace("_", "-"): by for mode, by in factors.items()}
    return [replace(r, step_time_ms_p50=(r.step_time_ms_p50 or 0) * times.get(r.compile_mode, 1.0)) for r in rows]


def test_changes_say_what_got_slower_faster_larger_or_stayed():
    now = changed(default=1.2, eager=0.8)
    now = [replace(r, peak_allocated_bytes=12 * GIB) if r.compile_mode == "max-autotune" else r for r in now]
    text = shown(print_changes, find_changes(now, changed()))
    assert line_of(text, "default").split()[1:5] == ["29.84", "->", "35.81", "ms"]
    assert "1.20x [1.19, 1.21]" in text
    assert line_of(text, "default").endswith(" slower")
    assert line_of(text, "eager").endswith(" faster")
    assert line_of(text, "max-autotune ").endswith(" uses more memory")
    assert "2.26x" in text
    assert line_of(text, "reduce-overhead").endswith(" no measurable difference")
    assert "resnet50 on synthetic, batch 64" in text


def test_changes_name_what_only_one_side_has_and_what_is_unknown():
    now = [r for r in changed() if r.compile_mode != "default"]
    then = [r for r in changed() if r.compile_mode != "eager"]
    text = shown(print_changes, find_changes(now, then))
    assert "Not measured now: default" in text
    assert "Not in the baseline: eager" in text
    one = [r for r in changed() if r.repeat == 0]
    assert line_of(shown(print_changes, find_changes(one, one)), "default").endswith(" unknown: too few runs")


# Markdown


def test_markdown_has_a_table_for_each_group_and_a_list_of_what_was_dropped():
    text = markdown_comparison(compare([*five_modes(), row("eager", 3.0, model="simple_cnn")]))
    heads = [line for line in text.splitlines() if line.startswith("| setting")]
    assert heads == [
        "| setting | speed-up over eager | compile s | step ms | epoch s | memory GiB | accuracy | runs |",
    ] * len(heads)
    assert len(heads) == 2
    assert "| default | 1.10x (1.09-1.11) | 0.0 | 31.05 (31.00-31.10) | 12.3 | 5.99 | 0.972 | 2 |" in text
    assert "- max-autotune (1 run): timeout: stopped after 600 s" in text.replace("resnet18, ", "")
    assert "**simple\\_cnn on synthetic, batch 64" in text


def test_markdown_of_names_and_errors_is_escaped():
    rows = [
        row("eager", 2.0, overrides=["a=x|y"]),
        row("eager", 2.0, overrides=["a=<b>"]),
        row("default", None, status="failed", error="`a` | *b* <script>\nmore"),
    ]
    text = markdown_comparison(compare(rows))
    assert "One run only of every setting" in text
    assert "One run only of eager, a=\\<b\\>: " in markdown_comparison(compare([*rows, rows[0]]))
    assert "| eager, a=x\\|y |" in text
    assert "| eager, a=\\<b\\> |" in text
    assert "\\`a\\` \\| \\*b\\* \\<script\\>" in text
    assert "more" not in text.split("Dropped")[1]


# a run


def test_the_summary_of_a_run_has_every_figure_with_its_unit(tmp_path):
    text = shown(print_run, ROW, tmp_path)
    assert line_of(text, "asked").split(maxsplit=1)[1].strip() == (
        "resnet18 on synthetic, batch 64, eager, bf16-mixed, seed 0"
    )
    assert "model=resnet18 optimizer.lr=0.1" in line_of(text, "overrides")
    assert line_of(text, "got").split() == ["got", "eager"]
    assert "time 0.00 s, graphs 0, breaks -" in line_of(text, "compile")
    assert "p50 34.10 ms, p90 34.90 ms, p99 40.00 ms; 0 compiling, 0 warm-up, 1,460 steady of 1,500" in line_of(
        text, "step"
    )
    assert "train 12.3 s, validation 0.512 s" in line_of(text, "epoch")
    assert "samples/s 1,876, waiting for data 1.3 %" in line_of(text, "speed")
    assert "allocated 5.99 GiB, reserved 6.59 GiB, device 7.79 GiB" in line_of(text, "memory")
    assert "train 0.0123, validation 0.0456" in line_of(text, "loss")
    assert "validation 0.972, epochs 10" in line_of(text, "accuracy")
    assert "1 x NVIDIA H100, torch 2.11.0" in line_of(text, "machine")


def test_the_summary_says_what_the_compile_seconds_went_into_the_parts_of_a_step_and_the_check(tmp_path):
    (compiled,) = [r for r in gpu_sweep(1) if (r.status, r.compile_mode) == ("ok", "reduce-overhead")]
    text = " ".join(shown(print_run, compiled, tmp_path).split())
    assert (
        "start-up 3.40 s apart, forward 9.87 s (36.5 %), backward 14.3 s (52.8 %), CUDA graphs 1.08 s (4.0 %)" in text
    )
    assert "forward 7.29 ms, backward 13.64 ms, optimizer 2.59 ms (profiling epoch)" in text
    assert "check same as eager: loss 1.2e-03 (eager 1.3e-03), grad 4.1e-03 (eager 3.9e-03)" in text
    eager = shown(print_run, ROW, tmp_path)
    assert not any(word in eager for word in ("start-up", "check", "profiling"))


def test_several_processes_are_said(tmp_path):
    assert "batch 64, 2 processes" in shown(print_run, replace(ROW, world_size=2), tmp_path)


def test_a_summary_says_what_broke_a_graph_what_made_it_compile_anew_and_what_to_do(tmp_path):
    again = {"recompiles": ["0/0: size mismatch"], "recompile_shapes": [[[40, 3], [40]]], "recompile_times_s": [1.5]}
    text = shown(print_run, replace(ROW, graph_breaks=BREAKS, **again), tmp_path, width=400)
    item, printed = (remedy_for_break(graph_break) for graph_break in BREAKS)
    order = [
        *("models/resnet.py:41: Unsupported Tensor.item()", f".item(): {item.fix}"),
        *("models/resnet.py:57: ", f"print: {printed.fix}"),
        *("1.50 s: 0/0: size mismatch (by a batch of [40, 3] and [40])", f"shape that changes: {CHANGING_SIZE.fix}"),
    ]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


def test_a_summary_says_which_batch_brought_a_recompile_where_a_size_is_its_cause(tmp_path):
    bound, grad = "0/0: 2 <= inputs.size()[0] <= 32", "0/0: GLOBAL_STATE changed: grad_mode"
    again = {"recompiles": [f"{bound}  # {'loss = f(x) ' * 30}", grad], "recompile_times_s": [1.5, 0.5]}
    again["recompile_shapes"] = [[[45, 3], [45]], [[64, 3], [64]]]
    text = shown(print_run, replace(ROW, **again), tmp_path, width=400)
    assert f"1.50 s: {bound} (by a batch of [45, 3] and [45])" in text
    assert f"0.500 s: {grad}" in text
    assert text.count("by a batch") == 1


def test_a_summary_names_the_files_that_exist(tmp_path):
    write_row(tmp_path, ROW)
    (tmp_path / "checkpoints").mkdir()
    text = shown(print_run, ROW, tmp_path, width=300)
    assert line_of(text, "files").split() == ["files", f"{tmp_path}:", "row.json", "checkpoints/"]


def test_asked_and_got_that_differ_end_the_summary_with_a_yellow_line(tmp_path):
    other = row("reduce-overhead", 2.0, effective_mode="default", effective_mode_reason="no [CUDA] device")
    file = StringIO()
    print_run(other, tmp_path, console=Console(file=file, width=120, force_terminal=True, color_system="standard"))
    assert file.getvalue().endswith("\x1b[33mrequested reduce-overhead, effective default: no [CUDA] device\x1b[0m\n")


def test_a_failure_ends_the_summary_with_a_red_line_and_dashes_for_what_is_unknown(tmp_path):
    failed = Row(run_id="a/b", status="oom", error="OutOfMemoryError: 2 GiB\nsecond line", model="m", data="d")
    file = StringIO()
    print_run(failed, tmp_path, console=Console(file=file, width=120, force_terminal=True, color_system="standard"))
    text = file.getvalue()
    assert text.endswith("\x1b[31moom: OutOfMemoryError: 2 GiB\x1b[0m\n")
    assert "p50 -, p90 -, p99 -" in text
    assert "allocated -, reserved -" in text
    assert "None" not in text


def test_a_good_run_ends_with_its_files(tmp_path):
    assert shown(print_run, ROW, tmp_path).splitlines()[-1].startswith("files")


# a job, an epoch


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        (row("default", 23.581, compile_time_s=55.61), "ok: step 23.58 ms, compile 55.6 s"),
        (row("default", None, status="timeout", error="stopped after 5 s"), "timeout: stopped after 5 s"),
        (row("default", 2.0, effective_mode="mixed"), "requested default, effective mixed"),
    ],
)
def test_a_jobs_outcome_is_one_line(job, outcome):
    assert job_outcome(job) == outcome


def test_an_epoch_is_one_line_that_counts_from_one():
    line = shown(print_epoch, EPOCH, 10, width=80)
    assert line == "epoch  3/10  loss 0.5123  val -  accuracy 0.913  12.8 s + 0.050 s (12.3 s compile)\n"


@pytest.mark.parametrize("max_epochs", [None, -1])
def test_an_epoch_of_a_run_without_a_last_one(max_epochs):
    line = shown(print_epoch, replace(EPOCH, compile_time_s=0.0, val_loss=0.48), max_epochs)
    assert line == "epoch 3  loss 0.5123  val 0.4800  accuracy 0.913  12.8 s + 0.050 s\n"


# scripts/report.py

BAD_VALUES = (("killed", 1), ("ok", '"12"'), ("ok", "NaN"))


def script(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return forked.python(ROOT / "scripts" / "report.py", *argv, cwd=cwd)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for number, measured in enumerate(five_modes()):
        run_dir = tmp_path / "runs" / "sweep" / f"{number:03d}"
        run_dir.mkdir(parents=True)
        write_row(run_dir, measured)
    return tmp_path / "runs"


def test_the_script_prints_the_comparison_of_all_directories_in_a_width_that_cuts_nothing(sweep):
    ended = script(sweep / "sweep" / "000", sweep / "sweep" / "001", cwd=sweep)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "default" in ended.stdout
    assert "1.10x" in ended.stdout
    assert "1 x NVIDIA H100, torch 2.11.0, triton 3.6.0, CUDA 13.0, Python 3.12.3, lightning 2.6.6\n" in ended.stdout


def test_the_script_prints_markdown(sweep):
    ended = script("--markdown", sweep, cwd=sweep)
    assert ended.returncode == 0
    assert "| default | 1.10x (1.09-1.11) |" in ended.stdout


def test_a_row_given_twice_is_one_row(sweep):
    ended = script("--markdown", sweep, sweep / "sweep", "sweep/../sweep/001", sweep, cwd=sweep)
    assert ended.stdout == script("--markdown", sweep, cwd=sweep).stdout


def test_the_script_writes_the_report_beside_the_rows_and_advises_for_the_steps_planned(sweep):
    ended = script(sweep, "--steps", "10,000", cwd=sweep)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "for a run of 10,000 steps" in ended.stdout
    assert ended.stdout.splitlines()[-1] == f"written: {sweep / 'report.md'} {sweep / 'report.html'}"
    assert "| default | 1.10x (1.09-1.11) |" in (sweep / "report.md").read_text()
    assert "<svg" in (sweep / "report.html").read_text()
    (sweep / "diagnosis.json").write_text('{"model": 3}')
    wrong = script(sweep, cwd=sweep)
    complaint = f"report: {sweep / 'diagnosis.json'} is not a diagnosis: it has no"
    assert wrong.returncode == 2
    assert re.fullmatch(f"{complaint} .*; it is left out of the page", wrong.stderr.strip())
    wrong = script(sweep, "--steps", "0", cwd=sweep)
    assert (wrong.returncode, wrong.stderr.splitlines()[-1]) == (
        2, "report.py: error: argument --steps: 0: expected a whole number above 0",
    )  # fmt: skip


@pytest.mark.parametrize(("times", "status", "says"), [(1.2, 1, "slower"), (0.8, 0, "faster"), (1.0, 0, "no measurab")])
def test_the_script_against_a_baseline_exits_1_where_a_setting_got_slower(times, status, says, tmp_path):
    for name, by in (("then", 1.0), ("now", times)):
        for measured in changed(default=by):
            run_dir = tmp_path / name / measured.run_id
            run_dir.mkdir(parents=True)
            write_row(run_dir, measured)
    ended = script("now", "--against", "then", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (status, "")
    assert says in line_of(ended.stdout, "default")
    assert not list(tmp_path.rglob("report.*"))  # a check of CI writes nothing


def test_the_script_against_other_work_checks_nothing_and_says_so(sweep, tmp_path):
    write_row(tmp_path, replace(ROW, model="gpt2"))
    ended = script(tmp_path / "row.json", "--against", sweep, cwd=tmp_path)
    assert ended.returncode == 2
    ended = script(sweep, "--against", tmp_path / "nothing", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (2, f"report: no row.json in or below {tmp_path / 'nothing'}\n")


def test_runs_of_one_name_in_two_places_stay_apart(tmp_path):
    for place, accuracy in (("x", 0.9), ("y", 0.2)):
        run_dir = tmp_path / place / "sweep" / "000-eager"
        run_dir.mkdir(parents=True)
        write_row(run_dir, replace(ROW, overrides=[f"optimizer.lr={accuracy}"]))
        append_epoch(run_dir, replace(EPOCH, val_accuracy=accuracy))
        append_epoch(run_dir, replace(EPOCH, epoch=3, val_accuracy=accuracy + 0.01))
    with (tmp_path / "y" / "sweep" / "000-eager" / "epochs.jsonl").open("a") as file:
        file.write('{"epoch": 4, "train_ti')  # what a kill leaves of a line
    ended = script("x", "y", "x/sweep", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    page = (tmp_path / "x" / "report.html").read_text()
    assert "0.9100" in page
    assert "0.2100" in page
    append_epoch(tmp_path / "y" / "sweep" / "000-eager", EPOCH)
    assert len(list(read_epochs(tmp_path / "y" / "sweep" / "000-eager"))) == 3


def test_the_script_against_a_baseline_exits_1_where_a_setting_fails_now(tmp_path):
    for name in ("then", "now"):
        for measured in changed():
            failed = name == "now" and measured.compile_mode == "default"
            run_dir = tmp_path / name / measured.run_id
            run_dir.mkdir(parents=True)
            write_row(run_dir, replace(measured, status="compile_error", error="boom") if failed else measured)
    ended = script("now", "--against", "then", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "Failed now: default: compile_error: boom" in ended.stdout
    assert script("now", "--against", "then", "--steps", "5", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("path", ["empty", "missing"])
def test_a_path_without_rows_is_one_line_and_status_2(sweep, path):
    (sweep / "empty").mkdir()
    ended = script(sweep, path, cwd=sweep)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"report: no row.json in or below {path}\n"


@pytest.mark.parametrize(
    "text",
    ["{", "{}", "[1]", *(f'{{"run_id": "a", "status": "{s}", "step_time_ms_p50": {t}}}' for s, t in BAD_VALUES)],
)
def test_a_file_that_is_no_row_is_one_line_and_status_2(tmp_path, text):
    (tmp_path / "row.json").write_text(text)
    ended = script(tmp_path, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"report: {tmp_path / 'row.json'} is not a row: ")
    assert ended.stderr.count("\n") == 1


def test_no_line_ends_in_blanks_where_it_is_no_terminal(capsys, tmp_path):
    print_findings(diagnosis())
    print_measurements(diagnosis())
    print_run(ROW, tmp_path)
    print_comparison(compare(gpu_sweep()))
    written = capsys.readouterr().out
    assert written.count("\n") > 40
    assert not re.search(r" $", written, re.MULTILINE)
    assert "  why    why\n  do     torch.where\n" in written


@pytest.mark.parametrize(
    ("mode", "share", "said"),
    [
        ("default", 0.75, "(67.5 % to 82.5 %).\n"),
        ("default", 0.25, "(22.5 % to 27.5 %) and waits for the host in the rest: compile.mode=reduce-overhead"),
        (
            "reduce-overhead",
            0.25,
            "in the rest: what no CUDA graph holds, as the optimizer, is launched",
        ),
    ],
)
def test_how_much_a_gpu_works_is_said_with_what_helps_where_it_waits(mode, share, said):
    one = diagnosis()
    phases = [replace(phase, device_busy_frac=Estimate(share, 0.9 * share, 1.1 * share)) for phase in one.phases[:1]]
    written = shown(print_measurements, replace(one, compile_mode=mode, phases=phases), width=300)
    assert f"forward: the GPU works for {100 * share:.1f} % of the compiled step " in written
    assert said in written


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (Estimate(-2.0, -17.0, 3.0), "no measurable difference (-17.0 to 3.0 ms); the rounds differ too much"),
        (Estimate(0.1, -0.2, 0.4), "no measurable difference (-0.20 to 0.40 ms)\n"),
        (Estimate(0.5, 0.1, 1.5), "0.50 ms (0.10 to 1.50 ms), 50.0 % of the forward step; the rounds differ too much"),
    ],
)
def test_a_cost_whose_range_is_wider_than_the_step_asks_for_the_machine(cost, said, capsys):
    one = diagnosis()
    print_measurements(replace(one, findings=[replace(one.findings[0], cost_ms=cost)]))
    written = capsys.readouterr().out
    assert said in written
    assert written.count("is the machine busy?") == said.count("differ too much")
