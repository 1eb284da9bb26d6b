"""The comparison and the changes against a baseline, as the terminal shows them."""

import re
from dataclasses import replace

import pytest

from tests.report.conftest import line_of, shown
from tests.sweeps import GIB, MIB, ROW, changed, diagnosis, five_modes, gpu_sweep, make_row, repeats
from trainkit.analysis.comparison import Comparison, compare
from trainkit.analysis.regressions import find_changes
from trainkit.report.diagnosis_tables import print_findings, print_measurements
from trainkit.report.markdown import markdown_comparison
from trainkit.report.summary import print_run
from trainkit.report.terminal import print_changes, print_comparison


def test_a_comparison_names_the_work_the_machine_and_the_units_above_figures_with_ranges_below(snapshot):
    assert shown(print_comparison, compare(five_modes())) == snapshot


def test_the_fastest_setting_is_on_top():
    text = shown(print_comparison, compare(five_modes()))
    settings = [line.split()[0] for line in text.split("Dropped")[0].splitlines() if "x  " in line]
    assert settings == ["max-autotune", "max-autotune-no-cudagraphs", "default", "eager"]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_longer_than_the_terminal_and_no_number_is_cut(width):
    rows = [*five_modes(), make_row("max-autotune-no-cudagraphs", 1234.5, compile_dynamic=True, val_accuracy=0.5)]
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
    rows = [make_row("eager", 134.0), make_row("default", 9.5)]
    text = shown(print_comparison, compare(rows))
    eager, default = line_of(text, "eager"), line_of(text, "default")
    assert eager.index("134.000") + len("134.000") == default.index("9.500") + len("9.500")


def test_a_long_label_breaks_at_its_hyphens():
    text = shown(print_comparison, compare(five_modes()), width=80)
    assert line_of(text.split("Dropped")[0], "max-autotune-no-").split()[0] == "max-autotune-no-"
    assert line_of(text, "cudagraphs").startswith("cudagraphs ")


def test_memory_below_a_gib_is_in_mib():
    text = shown(print_comparison, compare([make_row("eager", 34.0, peak_allocated_bytes=523 * MIB)]))
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
    text = shown(print_comparison, compare([make_row("eager", 34.0, **unmeasured)]))
    assert line_of(text, "eager").split() == ["eager", "1.00x", "-", "34.00", "-", "-", "1"]
    assert "accuracy" not in text  # nobody has one
    assert "None" not in text


def test_a_missing_eager_row_is_said():
    text = shown(print_comparison, compare([make_row("default", 5.0)]))
    assert "no eager row" in line_of(text, "default")
    assert "No advice: eager was not measured" in text
    assert "to compare with" not in text


def test_one_run_says_that_its_spread_is_unknown():
    both = shown(print_comparison, compare([make_row("eager", 2.0), make_row("default", 1.0)]))
    assert "One run only of every setting: its spread is unknown" in both
    one = shown(print_comparison, compare([make_row("eager", 2.0), make_row("eager", 2.1), make_row("default", 1.0)]))
    assert "One run only of default: its spread is unknown" in one
    assert "Two runs only of eager: such intervals are wide" in one
    none = shown(print_comparison, compare([make_row("eager", ms) for ms in (2.0, 2.1, 2.2)]))
    assert "spread" not in none
    assert "runs only" not in none


def test_runs_beside_other_processes_of_the_machine_are_said():
    busy = make_row("default", 1.0, foreign_cpu_frac=0.507)
    idle = [make_row("eager", 2.0, foreign_cpu_frac=0.02), make_row("default", 1.1, foreign_cpu_frac=None)]
    text = " ".join(shown(print_comparison, compare([*idle, busy])).split())
    assert "Busy (default, 1 of 2 runs): other processes took up to 50.7 % of the processors' time, and " in text
    assert "Busy" not in shown(print_comparison, compare(idle))


def test_steps_that_the_scaler_skipped_are_said():
    fp16 = [replace(make_row("eager", 2.0, run_id=f"r{skipped}"), num_skipped_steps=skipped) for skipped in (0, 3)]
    text = " ".join(shown(print_comparison, compare(fp16)).split())
    assert "eager: 3 of 1,500 steps skipped: a gradient overflowed fp16, and no parameter moved; the learning" in text
    assert "skipped" not in shown(print_comparison, compare([fp16[0], make_row("eager", 2.0)]))
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
    rows = [make_row("eager", 2.0, torch_version=torch), make_row("max-autotune", 1.0, torch_version=torch, **cost)]
    text = " ".join(shown(print_comparison, compare(rows)).split())
    assert ("kernels are autotuned again, for much of the compile time (95.5 % of max-autotune): torch" in text) == said


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
    text = shown(print_comparison, compare([make_row("default", None, status="failed", error="no such file")]))
    assert "Nothing to compare: no run was measured." in text
    assert "failed: no such file" in text
    assert "Nothing to compare" in shown(print_comparison, Comparison((), ()))


def test_names_and_errors_are_no_markup():
    """Neither rich's, nor a terminal's escape sequences."""
    rows = [
        make_row("eager", 2.0, model="[red]net[/red]", overrides=["a=[bold]b[/bold]"]),
        make_row("eager", 2.0, model="[red]net[/red]", overrides=["a=[/]"]),
        make_row("default", None, status="failed", error="\x1b[31mbad\x1b[0m\x07 [/nope] :boom:"),
    ]
    text = shown(print_comparison, compare(rows))
    assert "[red]net[/red] on synthetic" in text
    assert "a=[bold]b[/bold]" in text
    assert "a=[/]" in text
    assert "failed: bad  [/nope] :boom:" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_reason_of_pages_is_cut_short():
    text = shown(print_comparison, compare([make_row("default", None, status="failed", error="word " * 1000)]))
    assert "..." in text
    assert len(text) < 1000


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
    assert "\n**Train with max-autotune: 1.50x \\[1.48, 1.52\\] over eager; " in text
    assert "\n- default: 1.14x \\[1.12, 1.15\\] over eager, +24 s compile" in text


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


def test_medians_far_from_their_factor_stand_beside_the_ranges_that_explain_it():
    then, now = repeats("eager", 11.0, 11.33, 60.0), repeats("eager", 10.0, 182.03, 185.0)
    (change,) = find_changes(now, then).changes
    text = shown(print_changes, find_changes(now, then))
    assert [spread.median for spread in change.step_time_ms] == [182.03, 11.33]
    assert "11.33 -> 182.03 ms" in text
    assert "11.00-60.00 -> 10.00-185.00" in text
    assert f"{(10 * 182.03 * 185 / (11 * 11.33 * 60)) ** (1 / 3):.2f}x [" in text
    assert "a factor is the ratio of geometric means" in " ".join(text.split())


def test_changes_name_what_only_one_side_has_and_what_is_unknown():
    now = [r for r in changed() if r.compile_mode != "default"]
    then = [r for r in changed() if r.compile_mode != "eager"]
    text = shown(print_changes, find_changes(now, then))
    assert "Not measured now: default" in text
    assert "Not in the baseline: eager" in text
    one = [r for r in changed() if r.repeat == 0]
    text = shown(print_changes, find_changes(one, one))
    assert line_of(text, "default").endswith(" unknown: too few runs")
    checked = "so this is not checked: measure both sides with hydra.launcher.repeats=5."
    assert checked in " ".join(text.split())
    assert checked not in " ".join(shown(print_changes, find_changes(changed(), changed())).split())


def test_no_line_ends_in_blanks_where_it_is_no_terminal(capsys, tmp_path):
    print_findings(diagnosis())
    print_measurements(diagnosis())
    print_run(ROW, tmp_path)
    print_comparison(compare(gpu_sweep()))
    written = capsys.readouterr().out
    assert written.count("\n") > 40
    assert not re.search(r" $", written, re.MULTILINE)
    assert "  why     why\n  do      torch.where\n" in written


@pytest.mark.parametrize("num_settings", [2, 3])
def test_many_settings_of_a_group_stand_below_its_name(num_settings):
    settings = ["data.path=words", "trainer.max_epochs=4", "model.dim=128"][:num_settings]
    other = replace(ROW, run_id="other", data="text", overrides=settings)
    text = shown(print_comparison, compare([ROW, other]))
    name, below, *_ = text[text.index("resnet18 on text") :].splitlines()
    assert (name.endswith(", ".join(settings)), below == f"with {', '.join(settings)}") == (
        num_settings == 2,
        num_settings == 3,
    )
