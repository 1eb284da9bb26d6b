"""The plot of times over the number that a sweep varies, with a line through each setting and its crossing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from trainkit.analysis.crossing import Crossing, Line, Times, difference_at, find_crossing, fit_line
from trainkit.analysis.dropping import step_times_ms
from trainkit.formatting import decimals, fixed
from trainkit.report.labels import step_noun
from trainkit.report.plots.axes import (
    LegendEntry,
    add_legend,
    curve_axes,
    far_apart,
    set_number_scale,
    set_time_scale,
    shifted,
)
from trainkit.report.plots.palette import STYLE, Look, Looks
from trainkit.report.plots.series import Series, ranked_labels
from trainkit.report.plots.svg import Plot, figure_svg, plot_description
from trainkit.stats import Estimate

DOT_DISTANCE = 3  # px: the runs of the settings are drawn beside each other
MAX_US = 10_000  # longer times are in milliseconds
LINE_POINTS = 40  # of a straight line on a logarithmic axis


@dataclass(frozen=True)
class _Curve:
    """The times of a setting, the line through them (None: too few numbers), and the crossing of this line with eager's
    (None: is eager, or has none to be compared with)."""

    times: Times
    line: Line | None
    crossing: Crossing | None


@rc_context(STYLE)
def plot_times_over(series: Series, looks: Looks, name: str) -> Plot | None:
    """The time of each run over a number, a line through the runs of each setting, and its turning point: the number of
    its crossing with eager's. None if no setting has enough numbers for a line, or these have a logarithmic axis."""
    numbers = [number for number, _ in series.groups]
    unit, times = _times(series)
    curves = _curves(series, {label: times[label] for label in ranked_labels(series)})
    if all(curve.line is None for curve in curves.values()) or far_apart(numbers):
        return None
    step = step_noun(series.groups[0][1])
    figure, axes = curve_axes(series.setting, f"{unit} a {step}", num_ticks=7, head=len(curves) + 1)
    set_number_scale(axes, numbers)
    all_times: list[float] = []
    for curve in curves.values():
        all_times += _all_times(curve)
    set_time_scale(axes, sorted(all_times))
    legend, keys = [], []
    for position, (label, curve) in enumerate(curves.items()):
        look = looks[label]
        _draw_runs(axes, curve, look, DOT_DISTANCE * (position - (len(curves) - 1) / 2))
        if curve.line is not None:
            _draw_line(axes, curve.line, curve.crossing, look, numbers)
        legend.append(LegendEntry(look.color, label))
        keys.append((label, _curve_text(curve, series, unit)))
    add_legend(axes, legend, num_columns=1, up=1)  # a file has no key beside it
    title = f"Time of a {step} by {series.setting}"
    if series.condition:
        title += f", {series.condition}"
    texts = "; ".join(f"{label} {text}" for label, text in keys)
    note = f"Dots are runs, lines are fitted to them; in brackets 95 % intervals. {texts}."
    note += _differences_text(curves, series, unit)
    if axes.get_yscale() == "log":
        note = f"The axis of the times is logarithmic: straight lines are curves. {note}"
    return Plot(title, figure_svg(figure, name, plot_description(title, keys)), note, tuple(keys))


def _times(series: Series) -> tuple[str, dict[str, dict[float, list[float]]]]:
    """The unit, and in it the times of each setting's runs by number."""
    times: dict[str, dict[float, list[float]]] = {}
    longest_ms = 0.0
    for number, group in series.groups:
        for candidate in group.candidates:
            repeats = step_times_ms(candidate.rows)
            times.setdefault(candidate.label, {})[number] = repeats
            longest_ms = max(longest_ms, *repeats)
    if 1000 * longest_ms > MAX_US:
        return "ms", times
    for by_number in times.values():
        for number, repeats in by_number.items():
            by_number[number] = [1000 * time_ms for time_ms in repeats]
    return "us", times


def _curves(series: Series, times: Mapping[str, Times]) -> dict[str, _Curve]:
    """The curve of each setting that has a line."""
    baselines = {}
    for _, group in series.groups:
        for candidate in group.compiled:
            baselines[candidate.label] = candidate.baseline
    curves = {}
    for label, by_number in times.items():
        line, eager_line = fit_line(by_number), fit_line(times.get(baselines.get(label) or "", {}))
        crossing = None
        if line is not None and eager_line is not None:
            crossing = find_crossing(line, eager_line, series.groups[0][0], series.groups[-1][0])
        curves[label] = _Curve(by_number, line, crossing)
    return curves


def _draw_runs(axes: Axes, curve: _Curve, look: Look, right: float) -> None:
    """Draw a dot for each run, some px to the right."""
    xs: list[float] = []
    ys: list[float] = []
    for number, repeats in curve.times.items():
        xs += [number] * len(repeats)
        ys += repeats
    axes.plot(xs, ys, "o", color=look.color, markersize=2.5, alpha=0.6, transform=shifted(axes, right))


def _all_times(curve: _Curve) -> list[float]:
    times: list[float] = []
    for repeats in curve.times.values():
        times += repeats
    return times


def _draw_line(axes: Axes, line: Line, crossing: Crossing | None, look: Look, numbers: Sequence[float]) -> None:
    """Draw the line, a large dot at its crossing with eager's, and the interval of that."""
    ends = [numbers[0], numbers[-1]]
    xs = np.linspace(ends[0], ends[1], LINE_POINTS).tolist()
    axes.plot(xs, [line.at(x) for x in xs], color=look.color, linestyle=look.line, linewidth=1.8)
    if crossing is None or crossing.value is None:
        return
    y = line.at(crossing.value)
    low = ends[0] if crossing.low is None else crossing.low
    high = ends[1] if crossing.high is None else crossing.high
    axes.plot([low, high], [y, y], "|-", color=look.color, linewidth=2.5, markersize=10, markeredgewidth=1.6)
    axes.plot([crossing.value], [y], "o", color=look.color, markersize=6.5)


def _curve_text(curve: _Curve, series: Series, unit: str) -> str:
    if curve.line is None:
        return f"has runs at {len(curve.times)} numbers, too few for a line"
    slope = curve.line.slope_interval
    text = f"takes {_estimate_text(slope)} {unit} more for each"
    if curve.crossing is None:
        return text
    return f"{text} and {_crossing_text(curve.crossing, series)}"


def _differences_text(curves: Mapping[str, _Curve], series: Series, unit: str) -> str:
    """How much more than the fastest compiled setting the others take, at the middle one of the numbers."""
    lines = {}
    for label, curve in curves.items():
        if curve.line is not None and curve.crossing is not None:
            lines[label] = curve.line
    number = series.groups[len(series.groups) // 2][0]
    fastest = min(lines, key=lambda label: lines[label].at(number), default="")
    text = ""
    for label, line in lines.items():
        if label != fastest:
            difference = _estimate_text(difference_at(number, line, lines[fastest]))
            text += f" At {series.setting}={fixed(number, 0)} {label} takes {difference} {unit} more than {fastest}."
    return text


def _estimate_text(estimate: Estimate) -> str:
    digits = decimals([estimate.high - estimate.low], 2)
    return f"{fixed(estimate.value, digits)} [{fixed(estimate.low, digits)}, {fixed(estimate.high, digits)}]"


def _crossing_text(crossing: Crossing, series: Series) -> str:
    """`crosses eager at model.num_ops=12.0 [9.8, 14.3]`."""
    first, last = fixed(series.groups[0][0], 0), fixed(series.groups[-1][0], 0)
    if crossing.value is None:
        verb = "does not cross" if crossing.excluded else "may or may not cross"
        return f"{verb} eager within {series.setting}={first} to {last}"
    low = f"below {first}" if crossing.low is None else fixed(crossing.low, 1)
    high = f"above {last}" if crossing.high is None else fixed(crossing.high, 1)
    return f"crosses eager at {series.setting}={fixed(crossing.value, 1)} [{low}, {high}]"
