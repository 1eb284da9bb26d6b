"""What is drawn: the SVG of each plot read back as elements, lines and words."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from matplotlib import rc_context

from tests.sweeps import epochs_of, gpu_sweep
from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Group, compare
from trainkit.report.plots.axes import LegendEntry, add_legend, curve_axes
from trainkit.report.plots.costs import plot_compile_time, plot_memory, plot_step_parts
from trainkit.report.plots.curves import plot_curve
from trainkit.report.plots.palette import STYLE, looks_of
from trainkit.report.plots.ratios import plot_speedups
from trainkit.report.plots.time_to_step import plot_time_to_step
from trainkit.results.row import Row
from trainkit.stats import Ratio

LABELS = ["a$b$c", "$x^2$", "<script>alert(1)</script>", "]]>", '"onload=', "_first", "&amp;", "\\frac{1}{2}"]


def group_of(rows: list[Row], num_planned_steps: int | None = None) -> Group:
    (group,) = compare(rows, num_planned_steps).groups
    return group


def with_settings(group: Group, change) -> Group:
    return replace(group, candidates=tuple(change(setting) for setting in group.candidates))


def words(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter("text")]


def lines(svg: str, color: str) -> list[list[tuple[float, float]]]:
    """The points of each line of a colour, longest path first."""
    drawn = []
    for path in ElementTree.fromstring(svg).iter("path"):
        if f"stroke: var(--{color})" in path.get("style", "") and "clip-path" in path.attrib:
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d", ""))]
            drawn.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
    return sorted(drawn, key=len, reverse=True)


def marks(svg: str, color: str) -> list[tuple[float, float]]:
    uses = ElementTree.fromstring(svg).iter("use")
    return [
        (float(use.get("x", "")), float(use.get("y", ""))) for use in uses if f"var(--{color})" in use.get("style", "")
    ]


def height_at(line: list[tuple[float, float]], x: float) -> float:
    (x0, y0), (x1, y1) = line[0], line[-1]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


@pytest.mark.parametrize("label", LABELS)
def test_a_label_is_drawn_letter_by_letter(label):
    group = with_settings(group_of(gpu_sweep()), lambda setting: replace(setting, label=f"{setting.label} {label}"))
    plot = plot_speedups(group, looks_of([group]), "p")
    assert plot is not None
    assert f"default {label}" in " ".join(words(plot.svg))
    assert f"default {label} 1.14x [" in ElementTree.fromstring(plot.svg).get("aria-label", "")


def test_a_label_of_several_lines_is_cut_after_the_fifth():
    group = with_settings(group_of(gpu_sweep()), lambda setting: replace(setting, label="word " * 60))
    plot = plot_compile_time(group, "p")
    assert plot is not None
    assert words(plot.svg).count("seconds") == 1
    assert sum(line.startswith("word") for line in words(plot.svg)) == 5 * len(group.candidates[:-1])


@pytest.mark.parametrize(
    "lines",
    [
        ["default, trainer.activation_", "checkpointing=false, trainer.gradient_", "clip_val=0.125"],
        ["default, trainer.num_nodes=123,", "ddp.shard_optimizer=true"],
    ],
    ids=["within a name and no number", "before a group"],
)
def test_a_label_breaks(lines):
    label = " ".join(lines).replace("_ ", "_")
    plot = plot_compile_time(with_settings(group_of(gpu_sweep()), lambda setting: replace(setting, label=label)), "p")
    assert plot is not None
    assert "|".join([*lines, ""]) in "|".join(words(plot.svg))


@rc_context(STYLE)
def test_the_legend_of_a_curve_lies_within_the_figure():
    long = "trainer.activation_checkpointing=false, " * 9
    labels = ["default, dynamic=false, max_recompiles=null", f"default, {long}"]
    figure, axes = curve_axes("model.num_ops", "us a call", num_ticks=7, head=3)
    add_legend(axes, [LegendEntry("black", label) for label in labels], num_columns=1, up=1)
    figure.canvas.draw()
    legend = axes.get_legend()
    assert legend is not None
    whole, cut = [text.get_text() for text in legend.get_texts()]
    assert whole == labels[0]
    assert cut == "default, trainer.activation_ ..."
    assert legend.get_window_extent().x0 >= 0
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_ids_begin_with_the_name_and_no_colour_is_left_that_a_theme_cannot_change():
    group = group_of(gpu_sweep())
    plot = plot_memory(group, looks_of([group]), "some-name")
    assert plot is not None
    ids = [value for e in ElementTree.fromstring(plot.svg).iter() if (value := e.get("id"))]
    assert ids
    assert all(value.startswith("some-name-") for value in ids)
    assert not re.findall(r"(?:fill|stroke): #", plot.svg)


def test_a_compiled_setting_crosses_eager_at_its_dot():
    group = group_of(gpu_sweep())
    looks = looks_of([group])
    plot = plot_time_to_step(group, looks, "p")
    assert plot is not None
    (eager,) = lines(plot.svg, "ink")
    for setting in group.candidates[:-1]:
        color = looks[setting.label].variable[len("var(--") : -1]
        (line,), ((x, y),) = lines(plot.svg, color), marks(plot.svg, color)
        assert height_at(line, x) == pytest.approx(y, abs=0.1)
        assert height_at(eager, x) == pytest.approx(y, abs=0.1)


def test_settings_that_are_far_off_are_drawn_on_logarithmic_axes():
    def far(setting: Candidate) -> Candidate:
        if setting.label != "max-autotune":
            return setting
        setup_time_s = replace(setting.setup_time_s, median=100 * setting.setup_time_s.median)
        return replace(setting, setup_time_s=setup_time_s, break_even=None)

    near = group_of(gpu_sweep())
    group = with_settings(near, far)
    looks = looks_of([group])
    plot = plot_time_to_step(group, looks, "p")
    assert plot is not None
    assert "Both axes are logarithmic" in plot.note
    assert "logarithmic" not in plot_time_to_step(near, looks, "p").note
    tops = {}
    for setting in group.candidates:
        line = lines(plot.svg, looks[setting.label].variable[len("var(--") : -1])[0]
        tops[setting.label] = line[-1][1]
    bottom = max(tops.values())
    assert all(0 < top <= bottom for top in tops.values())
    assert tops["max-autotune"] == min(tops.values())


def test_the_planned_steps_are_a_line_where_they_are_among_the_crossings():
    for planned, drawn in ((2_000, True), (1_000_000, False)):
        group = group_of(gpu_sweep(), planned)
        plot = plot_time_to_step(group, looks_of([group]), "p")
        assert plot is not None
        assert (len(lines(plot.svg, "muted")) == 1) == drawn
        assert ("Dashed: the 2,000 steps planned." in plot.note) == drawn


def test_minutes_and_seconds():
    group = group_of([replace(row, num_steps=100) for row in gpu_sweep() if row.compile_mode != "eager"])
    for slower, unit in ((1, "seconds"), (100, "minutes")):

        def slow(setting: Candidate, times: int = slower) -> Candidate:
            return replace(setting, comparable_times_ms=(30.0 * times,))

        plot = plot_time_to_step(with_settings(group, slow), looks_of([group]), "p")
        assert plot is not None
        assert words(plot.svg).count(unit) == 1


def test_an_interval_is_drawn_from_its_low_to_its_high_end_and_none_where_it_is_unknown():
    group = group_of(gpu_sweep())
    looks = looks_of([group])
    known = plot_speedups(group, looks, "p")
    unknown = plot_speedups(
        with_settings(group, lambda s: replace(s, speedup=s.speedup and Ratio(s.speedup.value))), looks, "p"
    )
    assert known is not None
    assert unknown is not None
    assert (len(lines(known.svg, "s0")), len(lines(unknown.svg, "s0"))) == (1, 0)
    ((left, right),), (dot, *_) = lines(known.svg, "s0"), marks(unknown.svg, "s0")
    assert left[0] < right[0]
    assert left[1] == right[1] == pytest.approx(dot[1])


def test_an_interval_over_many_powers_of_ten_does_not_hide_the_others():
    def wide(setting: Candidate) -> Candidate:
        return replace(setting, speedup=Ratio(1.5, 1e-9, 1e9, 1e9, False)) if setting.label == "default" else setting

    group = with_settings(group_of(gpu_sweep()), wide)
    plot = plot_speedups(group, looks_of([group]), "p")
    assert plot is not None
    assert "1.50x [<0.001, 1,000+]" in words(plot.svg)
    assert {"1", "2"} <= set(words(plot.svg))
    (first, _), *_, (last, _) = sorted(marks(plot.svg, "s0"))  # arrows at the ends of the axes
    inside = [x for color in ("s1", "s2", "s3") for x, _ in marks(plot.svg, color)]
    assert first < min(inside) < max(inside) < last


def test_each_setting_has_a_band_of_its_own_noise_floor():
    floors = {"reduce-overhead": 0.1, "default": 0.3}

    def noisy(setting: Candidate) -> Candidate:
        known = (1.4, 1.6, floors[setting.label], True) if setting.label in floors else ()
        return replace(setting, speedup=Ratio(1.5, *known))

    group = with_settings(group_of(gpu_sweep()), noisy)
    plot = plot_speedups(group, looks_of([group]), "p")
    assert plot is not None
    bands = re.findall(r'd="M (\S+) \S+ L (\S+) [^"]*" clip-path="[^"]*" style="fill: var\(--band\)', plot.svg)
    narrow, wide = sorted(float(right) - float(left) for left, right in bands)
    assert wide / narrow == pytest.approx(math.log(1.3) / math.log(1.1), rel=1e-3)


def test_memory_is_one_bar_where_there_is_one_figure_and_marks_the_peak_while_compiling():
    rows = gpu_sweep()
    three = plot_memory(group_of(rows), looks_of([group_of(rows)]), "p")
    resident = [
        replace(row, peak_allocated_bytes=2**29, peak_reserved_bytes=2**29, peak_device_bytes=2**29) for row in rows
    ]
    resident = [replace(row, compile_peak_device_bytes=None) for row in resident]
    one = plot_memory(group_of(resident), looks_of([group_of(resident)]), "p")
    assert three is not None
    assert one is not None
    assert {"5.30 / 6.45 / 7.75", "GiB", "allocated", "reserved", "device"} <= set(words(three.svg))
    assert len(marks(three.svg, "ink")) == 4
    assert {"512", "MiB"} <= set(words(one.svg))
    assert "allocated" not in words(one.svg)
    assert not marks(one.svg, "ink")


def test_only_parts_that_cost_something_are_in_the_key():
    rows = [row for row in gpu_sweep() if row.compile_mode in ("eager", "default")]
    plot = plot_compile_time(group_of(rows), "p")
    assert plot is not None
    parts = {"start-up", "forward", "backward", "autotuning", "CUDA graphs", "recompiles"} & set(words(plot.svg))
    assert parts == {"start-up", "forward", "backward", "recompiles"}
    assert "not in the sum" in plot.note


def test_a_step_is_split_for_the_settings_that_know_all_parts():
    rows = [replace(r, backward_time_ms_p50=None) if r.compile_mode == "default" else r for r in gpu_sweep()]
    plot = plot_step_parts(group_of(rows), "p")
    assert plot is not None
    assert "max-autotune" in words(plot.svg)
    assert "default" not in words(plot.svg)


def test_each_repeat_is_a_thin_line_around_the_median_and_what_is_unknown_is_left_out():
    rows = gpu_sweep()
    group, epochs = group_of(rows), {row.run_id: epochs_of(row) for row in rows}
    looks = looks_of([group])
    plot = plot_curve(group, looks, epochs, "val_metric", "p")
    assert plot is not None
    assert len(lines(plot.svg, "s0")) == 4
    assert [len(line) for line in lines(plot.svg, "s0")] == [12] * 4
    assert [label for label, _ in plot.keys] == [setting.label for setting in group.candidates]
    never = {run: [replace(record, val_accuracy=None) for record in records] for run, records in epochs.items()}
    assert plot_curve(group, looks, never, "val_metric", "p") is None
    assert plot_curve(group, looks, {}, "train_loss", "p") is None


def test_a_plot_without_figures_is_none():
    group = group_of([Row(run_id="a", status="ok", compile_mode="default", step_time_ms_p50=1.0)])
    looks = looks_of([group])
    assert plot_speedups(group, looks, "p") is None
    assert plot_time_to_step(group, looks, "p") is None
    assert plot_memory(group, looks, "p") is None
    assert plot_compile_time(group, "p") is None
    assert plot_step_parts(group, "p") is None
