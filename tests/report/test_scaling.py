"""A scaling in the terminal, in Markdown and on the page."""

from dataclasses import replace

import pytest

from tests.report.conftest import line_of, shown
from tests.report.test_plots import lines, marks
from tests.sweeps import scaling_sweep
from trainkit.analysis.comparison import compare
from trainkit.report.markdown import markdown_comparison
from trainkit.report.page import html_comparison
from trainkit.report.plots.palette import looks_of
from trainkit.report.plots.ratios import plot_efficiency
from trainkit.report.scaling import scaling_notes, scaling_sentences, scaling_title
from trainkit.report.terminal import print_comparison


def sentences(rows) -> list[str]:
    (scaling,) = compare(rows).scalings
    return scaling_sentences(scaling)


def test_markdown_of_a_scaling(snapshot):
    text = markdown_comparison(compare(scaling_sweep()))
    assert text.partition("**gpt2 on")[0] == snapshot


def test_the_terminal_shows_a_line_for_each_setting_and_number_of_gpus():
    text = shown(print_comparison, compare(scaling_sweep()))
    _, _, table = text.partition("Weak scaling: gpt2 on synthetic, batch 16 per GPU, bf16-mixed")
    lines = [line.split()[:2] for line in table.splitlines() if line.startswith(("default", "reduce", "eager"))]
    assert lines == [[mode, count] for mode in ("default", "reduce-overhead", "eager") for count in ("1", "2", "4")]
    assert "not hidden" in table
    assert line_of(table, "With 4 GPUs").startswith("With 4 GPUs default (34.86 ms a step, 34.85-34.95) is best: ")


def test_a_sentence_for_each_number_says_what_is_best_or_that_it_cannot_be_told():
    one, two, four = sentences(scaling_sweep())
    assert one == "With 1 GPU reduce-overhead (30.95 ms a step, 30.82-31.02) is best."
    assert two == (
        "With 2 GPUs reduce-overhead (34.29 ms a step, 34.26-34.40) cannot be told from default "
        "(34.39 ms, 34.38-34.40): efficiency 0.901 [0.895, 0.907] of the best with 1 GPU."
    )
    assert four.startswith("With 4 GPUs default (34.86 ms a step, 34.85-34.95) is best: efficiency 0.887 ")


def test_one_run_of_each_does_not_show_the_best():
    one, two, _ = sentences(scaling_sweep(1))
    hint = "one run of a setting does not show which is best."
    assert one == f"With 1 GPU reduce-overhead (31.02 ms a step) has the shortest step; {hint}"
    assert two == (
        f"With 2 GPUs default (34.38 ms a step) has the shortest step: efficiency 0.902 of the best with 1 GPU; {hint}"
    )


def test_a_setting_that_was_measured_alone_is_not_called_best():
    eager = [row for row in scaling_sweep() if row.compile_mode == "eager"]
    assert sentences(eager)[1].startswith("With 2 GPUs eager (41.19 ms a step, 40.96-41.30) alone was measured: ")


def test_a_best_setting_that_was_not_measured_with_one_says_why_it_has_no_efficiency():
    rows = [row for row in scaling_sweep() if row.world_size > 1 or row.compile_mode == "eager"]
    assert sentences(rows)[2].endswith("; not measured with 1 GPU, so it has no efficiency.")


def test_ranks_of_a_cpu_are_processes():
    rows = [replace(row, accelerator="cpu", exposed_comm_ms=None, compute_ms=None) for row in scaling_sweep()]
    (scaling,) = compare(rows).scalings
    assert scaling_title(scaling).startswith("Weak scaling: gpt2 on synthetic, batch 16 per process")
    assert sentences(rows)[1].startswith("With 2 processes ")
    text = shown(print_comparison, compare(rows))
    assert "not hidden" not in text


def test_a_note_says_what_the_limit_of_power_means_where_a_setting_comes_up_to_it():
    (scaling,) = compare(scaling_sweep()).scalings
    assert scaling_notes(scaling)[-1].startswith(
        "Power: the energy of a step over its time, of each GPU. At the limit, 700 W"
    )
    for changed in ({"power_limit_w": 750.0}, {"power_limit_w": None}):
        (scaling,) = compare([replace(row, **changed) for row in scaling_sweep()]).scalings
        assert scaling_notes(scaling)[-1] == "Power: the energy of a step over its time, of each GPU."
    (scaling,) = compare([replace(row, energy_per_step_j=None) for row in scaling_sweep()]).scalings
    assert not any("Power" in note for note in scaling_notes(scaling))


def test_a_note_says_that_the_file_of_the_network_changed_between_runs():
    rows = [replace(row, network_digest="b2") for row in scaling_sweep()]
    rows[0] = replace(rows[0], network_digest=None)  # an old row
    assert not any("changed" in note for note in scaling_notes(compare(rows).scalings[0]))
    rows[0] = replace(rows[0], network_digest="a1")
    (note,) = [note for note in scaling_notes(compare(rows).scalings[0]) if "changed" in note]
    num_others = len(rows) - 1
    assert note.startswith(f"The file of the network changed between these runs: 1 run of a1, {num_others} runs of b2.")


def test_a_note_says_that_ratios_are_of_runs_on_the_same_machines():
    rows = scaling_sweep()
    assert not any("machines" in note for note in scaling_notes(compare(rows).scalings[0]))
    rows[0] = replace(rows[0], machine_id="another")
    (scaling,) = compare(rows).scalings
    assert any(note.startswith("The runs are of 2 machines of one kind.") for note in scaling_notes(scaling))


def test_strong_scaling_is_titled_by_the_whole_batch():
    rows = [replace(row, batch_size=64 // row.world_size) for row in scaling_sweep()]
    (scaling,) = compare(rows).scalings
    assert scaling_title(scaling).startswith("Strong scaling: gpt2 on synthetic, batch 64 in all, bf16-mixed")
    assert "per GPU" in shown(print_comparison, compare(rows))


def test_the_page_has_the_table_and_the_plot_of_efficiencies():
    comparison = compare(scaling_sweep())
    page = html_comparison(comparison, {}, "title")
    assert "<h2>Weak scaling: gpt2 on synthetic" in page
    assert page.index("<h2>Weak scaling") < page.index("<h2>gpt2 on")
    assert "Efficiency by number of GPUs" in page
    (scaling,) = comparison.scalings
    plot = plot_efficiency(scaling, looks_of(comparison.groups, comparison.scalings), "s0")
    assert [label for label, _ in plot.keys] == ["default", "reduce-overhead", "eager"]
    assert all(figure.endswith("with 4 GPUs") for _, figure in plot.keys)


def test_a_curve_of_efficiencies_begins_with_one_gpu_where_a_setting_has_a_shorter_label():
    rows = []
    for row in scaling_sweep():
        for strategy in ("single",) if row.world_size == 1 else ("ddp", "compiled"):
            rows.append(replace(row, run_id=f"{row.run_id}-{strategy}", strategy=strategy))
    comparison = compare(rows)
    (scaling,) = comparison.scalings
    looks = looks_of(comparison.groups, comparison.scalings)
    plot = plot_efficiency(scaling, looks, "s0")
    assert sorted(label for label, _ in plot.keys) == sorted(
        f"{mode}, ddp.strategy={strategy}"
        for mode in ("default", "reduce-overhead", "eager")
        for strategy in ("ddp", "compiled")
    )
    for label, _ in plot.keys:
        color = looks[label].variable.removeprefix("var(--").removesuffix(")")
        assert len(lines(plot.svg, color)[0]) == 3  # 1, 2 and 4 GPUs
    one, two, four = sorted({round(x) for x, _ in lines(plot.svg, "ink")[0]})
    assert four - two == pytest.approx(2 * (two - one), abs=2)


def test_curves_of_many_settings_stay_within_the_axes():
    rows = []
    for number in range(12):
        for row in scaling_sweep():
            rows.append(
                replace(row, run_id=f"{row.run_id}-{number}", overrides=[*row.overrides, f"optimizer.lr={number}"])
            )
    comparison = compare(rows)
    looks = looks_of(comparison.groups, comparison.scalings)
    plot = plot_efficiency(comparison.scalings[0], looks, "s0")
    assert len(plot.keys) == 36
    every = []
    for look in looks.values():
        color = look.variable.removeprefix("var(--").removesuffix(")")
        every += [x for x, _ in marks(plot.svg, color)]
    assert min(every) > 54 + 2
    assert max(every) < 340 - 20 - 2
