"""Plots of ratios with their intervals: speed-ups over eager, efficiencies of scaling, and pairwise comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from matplotlib import rc_context
from matplotlib.axes import Axes

from trainkit.analysis.candidates import dynamic_over_static
from trainkit.analysis.comparison import Group
from trainkit.analysis.pairs import PairwiseComparison
from trainkit.analysis.scaling import Scaling
from trainkit.formatting import percent
from trainkit.report.figures import factor_text, ratio_text
from trainkit.report.labels import choice_labels, pair_label, step_noun
from trainkit.report.plots.axes import (
    BAR,
    GAP,
    LegendEntry,
    add_legend,
    curve_axes,
    labelled_rows,
    set_number_scale,
    set_ratio_scale,
    shifted,
)
from trainkit.report.plots.palette import BAND, MUTED, STYLE, Look, Looks
from trainkit.report.plots.series import Series, ranked_labels
from trainkit.report.plots.svg import Plot, figure_svg, plot_description
from trainkit.report.scaling import device_count, device_noun, efficiency_curves, efficiency_text
from trainkit.results.optimized import direction_label
from trainkit.stats import Ratio

INTERVALS = "with 95 % intervals where there are repeats; within its band a difference may be chance"
ARROW_INSET = 3.0  # px from the edge of the axes
CURVE_DISTANCE = 5  # px: curves are drawn beside each other, not one on the other
CURVES_WIDTH = 20  # px, from the first to the last of many curves: all are within the margins of `set_number_scale`
NAMED_BY_VALUE = ("model", "amp.precision", "compile.mode")

RatioCurve = dict[float, Ratio]  # a ratio by the number on the x axis


@rc_context(STYLE)
def plot_speedups(group: Group, looks: Looks, name: str, condition: str = "") -> Plot | None:
    """Each compiled setting's speed-up over eager, the greatest first; None if there is none. `condition` tells the
    group from others."""
    by_label = {}
    for candidate in group.compiled:
        if candidate.speedup is not None:
            by_label[candidate.label] = candidate.speedup
    if not by_label:
        return None
    labels = sorted(by_label, key=lambda label: by_label[label].value, reverse=True)
    entries = [(label, ratio_text(by_label[label])) for label in labels]
    speedups = [by_label[label] for label in labels]
    colors = [looks[label].color for label in labels]
    rows = labelled_rows(entries)
    rows.axes.axvline(1, color=MUTED, linewidth=1)
    draw_intervals(rows.axes, rows.ys, speedups, colors)
    rows.axes.set_xlabel("times as fast as eager")
    title = f"Speed-up over eager, {condition}" if condition else "Speed-up over eager"
    svg = figure_svg(rows.figure, name, plot_description(title, entries))
    return Plot(title, svg, f"Per {step_noun(group)}, {INTERVALS}.")


@rc_context(STYLE)
def plot_speedups_over(series: Series, looks: Looks, name: str) -> Plot | None:
    """Each setting's speed-up over eager against a number, with its interval; None if there is none."""
    curves: dict[str, RatioCurve] = {}
    for number, group in series.groups:
        for candidate in group.candidates:
            if candidate.speedup is not None and not candidate.is_eager:
                curves.setdefault(candidate.label, {})[number] = candidate.speedup
    note = "Per step; bars are 95 % intervals where there are repeats. Above the line compiled steps are shorter."
    texts = _CurveTexts("Speed-up over eager", "times as fast as eager", note)
    return _plot_curves_over(series, curves, looks, texts, name)


@rc_context(STYLE)
def plot_dynamic_over(series: Series, looks: Looks, name: str) -> Plot | None:
    """The time with `compile.dynamic=true` over that with false against a number, with its interval, for each setting
    that has both; None without any."""
    curves: dict[str, RatioCurve] = {}
    for number, group in series.groups:
        for label, over in dynamic_over_static(group.candidates).items():
            curves.setdefault(label, {})[number] = over
    note = "Bars are 95 % intervals where there are repeats. Above the line dynamic shapes take longer."
    texts = _CurveTexts("Time with dynamic=true over dynamic=false", "times as long as static", note)
    return _plot_curves_over(series, curves, looks, texts, name)


@dataclass(frozen=True)
class _CurveTexts:
    """The title of a plot, before the setting that it is over, that of its y axis, and a note on how to read it."""

    title: str
    y_title: str
    note: str


def _plot_curves_over(
    series: Series, curves: Mapping[str, RatioCurve], looks: Looks, texts: _CurveTexts, name: str
) -> Plot | None:
    """Curves of ratios by the label of a setting, in the order of rank; None without any."""
    curves = {label: curves[label] for label in sorted(curves, key=ranked_labels(series).index)}
    if not curves:
        return None
    figure, axes = curve_axes(series.setting, texts.y_title, num_ticks=7, head=len(curves) + 1)
    set_number_scale(axes, [number for number, _ in series.groups])
    drawn_ratios: list[Ratio] = []
    for curve in curves.values():
        drawn_ratios += curve.values()
    set_ratio_scale(axes, "y", *ratio_limits(drawn_ratios))
    axes.axhline(1, color=MUTED, linewidth=1)
    keys, legend = [], []
    for right, (label, curve) in zip(_curve_shifts(len(curves)), curves.items(), strict=True):
        look = looks[label]
        _draw_curve(axes, curve, look, right)
        legend.append(LegendEntry(look.color, label))
        ratios = list(curve.values())
        keys.append((label, f"{factor_text(ratios[0])} to {factor_text(ratios[-1])}"))
    add_legend(axes, legend, num_columns=1, up=1)  # a file has no key beside it
    title = f"{texts.title} by {series.setting}"
    if series.condition:
        title += f", {series.condition}"
    return Plot(title, figure_svg(figure, name, plot_description(title, keys)), texts.note, tuple(keys))


def _curve_shifts(num_curves: int) -> list[float]:
    """How far each of the curves is drawn to the right of its numbers, in px."""
    distance = min(CURVE_DISTANCE, CURVES_WIDTH / max(num_curves - 1, 1))
    return [distance * (position - (num_curves - 1) / 2) for position in range(num_curves)]


def _draw_curve(axes: Axes, curve: RatioCurve, look: Look, right: float) -> None:
    """Draw a curve some px to the right, with an interval at each number."""
    numbers, values = list(curve), [speedup.value for speedup in curve.values()]
    transform = shifted(axes, right)
    axes.plot(numbers, values, color=look.color, linestyle=look.line, linewidth=1.8, transform=transform)
    axes.plot(numbers, values, "o", color=look.color, markersize=4.5, transform=transform)
    for number, speedup in curve.items():
        if speedup.low is None or speedup.high is None:
            continue
        ends = [speedup.low, speedup.high]
        axes.plot([number, number], ends, "_-", color=look.color, linewidth=1.2, markersize=6, transform=transform)
        bottom, top = axes.get_ylim()
        if speedup.low < bottom:
            inwards = shifted(axes, right, ARROW_INSET)
            axes.plot([number], [bottom], "v", color=look.color, markersize=5, transform=inwards)
        if speedup.high > top:
            inwards = shifted(axes, right, -ARROW_INSET)
            axes.plot([number], [top], "^", color=look.color, markersize=5, transform=inwards)


@rc_context(STYLE)
def plot_efficiency(scaling: Scaling, looks: Looks, name: str) -> Plot | None:
    """Each setting's efficiency against the number of processes, over the best setting with the fewest of them; None if
    there is none.

    A curve begins at the same setting with the fewest processes, whose label can be shorter.
    """
    curves = efficiency_curves(scaling)
    if not curves:
        return None
    counts = scaling.process_counts
    figure, axes = curve_axes(device_noun(scaling, plural=True), "efficiency", num_ticks=7)
    set_number_scale(axes, counts)
    drawn_ratios: list[Ratio] = []
    for curve in curves.values():
        drawn_ratios += curve.values()
    axes.set_ylim(*ratio_limits(drawn_ratios))
    axes.axhline(1, color=MUTED, linewidth=1)
    keys = []
    ranked = sorted(curves, key=lambda label: max(curves[label].items())[1].value, reverse=True)
    for right, label in zip(_curve_shifts(len(curves)), ranked, strict=True):
        curve = curves[label]
        _draw_curve(axes, curve, looks[label], right)
        last_count, last = max(curve.items())
        keys.append((label, f"{efficiency_text(last)} with {device_count(scaling, int(last_count))}"))
    title = f"Efficiency by number of {device_noun(scaling, plural=True)}"
    fewest = device_count(scaling, counts[0])
    note = f"Over the best setting with {fewest}; bars are 95 % intervals where there are repeats."
    return Plot(title, figure_svg(figure, name, plot_description(title, keys)), note, tuple(keys))


@rc_context(STYLE)
def plot_pairs(pairs: Sequence[PairwiseComparison], name: str, color: str) -> Plot | None:
    """One choice of settings over another, for each work that has both, with its interval, the greatest first; None
    without such pairs.

    For fractions it shows both sides, from the lowest run to the highest.
    """
    shown = [pair for pair in pairs if pair.of_fraction or pair.ratio is not None]
    if not shown:
        return None
    pairs = sorted(shown, key=_size, reverse=True)
    first = pairs[0]
    if first.of_fraction:
        return _plot_fractions(pairs, name, color)
    title = pair_label(first)
    entries, ratios = [], []
    for pair in pairs:
        entries.append((_pair_condition(pair), ratio_text(pair.ratio)))
        if pair.ratio is not None:
            ratios.append(pair.ratio)
    rows = labelled_rows(entries)
    rows.axes.axvline(1, color=MUTED, linewidth=1)
    draw_intervals(rows.axes, rows.ys, ratios, [color] * len(ratios))
    x_title = "times as much" if first.column else "times as fast"
    if first.of_metric:
        x_title += f", {direction_label(first.higher_is_better)}"
    rows.axes.set_xlabel(x_title)
    svg = figure_svg(rows.figure, name, plot_description(title, entries))
    return Plot(title, svg, f"{INTERVALS.capitalize()}.")


def _size(pair: PairwiseComparison) -> float:
    if pair.ratio is None:
        return median(pair.choice_values)
    return pair.ratio.value


def _plot_fractions(pairs: Sequence[PairwiseComparison], name: str, color: str) -> Plot:
    first = pairs[0]
    labels = choice_labels(first.choice, first.baseline)
    entries = []
    for pair in pairs:
        medians = f"{percent(median(pair.choice_values))} and {percent(median(pair.baseline_values))}"
        entries.append((_pair_condition(pair), medians))
    rows = labelled_rows(entries, head=2)
    for y, pair in zip(rows.ys, pairs, strict=True):
        draw_range(rows.axes, y, pair.baseline_values, MUTED)
        draw_range(rows.axes, y, pair.choice_values, color)
    rows.axes.set_xlim(-3, 103)
    add_legend(rows.axes, [LegendEntry(color, labels.choice), LegendEntry(MUTED, labels.baseline)], num_columns=1)
    title = pair_label(first)
    svg = figure_svg(rows.figure, name, plot_description(title, entries))
    return Plot(title, svg, "In percent, from the lowest to the highest run.")


def draw_range(axes: Axes, y: float, fracs: Sequence[float], color: str, size: float = 6.5) -> None:
    """Draw fractions in percent: a line from the lowest to the highest, and a point of `size` at their median."""
    percents = [100 * frac for frac in fracs]
    axes.plot([min(percents), max(percents)], [y, y], "|-", color=color, linewidth=2.5, markersize=size + 3.5)
    axes.plot([median(percents)], [y], "o", color=color, markersize=size)


def _pair_condition(pair: PairwiseComparison) -> str:
    """The settings that tell the pair from the others, by the last word of each name."""
    labels = []
    for name, value in pair.conditions.items():
        if name in NAMED_BY_VALUE:
            labels.append(value)
        else:
            short_name = name.rpartition(".")[2]
            labels.append(f"{short_name}={value}")
    return ", ".join(labels) or pair.choice


def draw_intervals(axes: Axes, ys: Sequence[float], ratios: Sequence[Ratio], colors: Sequence[str]) -> None:
    """Draw each ratio with its interval over a band around 1, in which both sides may differ by chance."""
    set_ratio_scale(axes, "x", *ratio_limits(ratios))
    for y, ratio, color in zip(ys, ratios, colors, strict=True):
        if ratio.noise_floor is not None:
            low, high = 1 / (1 + ratio.noise_floor), 1 + ratio.noise_floor
            axes.barh(y, high - low, BAR + GAP, low, color=BAND, linewidth=0, zorder=0)
        if ratio.low is not None and ratio.high is not None:
            ends = [ratio.low, ratio.high]
            axes.plot(ends, [y, y], "|-", color=color, linewidth=2.5, markersize=10, markeredgewidth=1.6)
        axes.plot([ratio.value], [y], "o", color=color, markersize=6.5)
        if ratio.low is not None and ratio.high is not None:
            left, right = axes.get_xlim()
            if ratio.low < left:
                axes.plot([left], [y], "<", color=color, markersize=6.5, transform=shifted(axes, ARROW_INSET))
            if ratio.high > right:
                axes.plot([right], [y], ">", color=color, markersize=6.5, transform=shifted(axes, -ARROW_INSET))


def ratio_limits(ratios: Sequence[Ratio]) -> tuple[float, float]:
    """From the lowest to the highest end and 1, with a margin, but at most twice beyond the values themselves.

    Intervals of two repeats can be so wide that nothing else would be visible: they run out of the axes.
    """
    values = [ratio.value for ratio in ratios]
    low, high = min(values), max(values)
    lowest, highest = low, high
    for ratio in ratios:
        for end in (ratio.low, ratio.high):
            if end is not None:
                lowest, highest = min(lowest, end), max(highest, end)
    left, right = min(1, max(lowest, 0.5 * low)), max(1, min(highest, 2 * high))
    margin = 1.01 * (right / left) ** 0.06
    return left / margin, right * margin
