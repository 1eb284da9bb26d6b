"""Plots of claims: the measured ratio of each comparison with its interval, beside the published one."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from trainkit.analysis.comparison import Group
from trainkit.analysis.pairs import PairwiseComparison
from trainkit.analysis.studies import MeasuredComparison
from trainkit.report.figures import ratio_text
from trainkit.report.labels import pair_label, settings_label
from trainkit.report.pairwise import condition_text, measured_text
from trainkit.report.plots.axes import labelled_rows
from trainkit.report.plots.palette import HUES, INK, MODES, MUTED, RULE, STYLE, Looks
from trainkit.report.plots.ratios import draw_intervals, draw_range, ratio_limits
from trainkit.report.plots.svg import Plot, figure_svg, plot_description
from trainkit.stats import Ratio

SMALL_WIDTH = 160  # px
SMALL_LINE = 9
SMALL_SHIFT = 2  # px: both sides of a pair are seen where they are equal
SMALL_TICKS = (0.25, 1, 4)
SMALL_PERCENTS = (0, 50, 100)
SMALL_RANGE = (1 / 9, 9.0)  # the same in all small plots: they compare
MAX_SMALL_LINES = 24


@dataclass(frozen=True)
class ClaimMark:
    """A measured ratio in the colour of its setting, and the ratio that was published, if any."""

    label: str
    ratio: Ratio
    published: float | None
    color: str


def claim_marks(comparisons: Sequence[MeasuredComparison], groups: Sequence[Group], looks: Looks) -> list[ClaimMark]:
    """A mark for each pair that has a ratio, the greatest first within a comparison. Several claims may have the same
    pair: it is drawn once for each published ratio, or once if none was published."""
    published_runs = set()
    for measured in comparisons:
        if _published_ratio(measured) is not None:
            published_runs |= {_compared_runs(pair) for pair in measured.pairs}
    marks: list[ClaimMark] = []
    shown_pairs = set()
    for measured in comparisons:
        published = _published_ratio(measured)
        own = []
        color = choice_color(measured, groups, looks)
        for pair in measured.pairs:
            runs = _compared_runs(pair)
            is_shown = (runs, published) in shown_pairs or (published is None and runs in published_runs)
            if pair.ratio is None or is_shown:
                continue
            shown_pairs.add((runs, published))
            label, condition = pair_label(pair), condition_text(pair)
            if condition:
                label += f", {condition}"
            own.append(ClaimMark(label, pair.ratio, published, color))
        marks += sorted(own, key=lambda mark: mark.ratio.value, reverse=True)
    return marks


def _published_ratio(measured: MeasuredComparison) -> float | None:
    published = measured.planned.published
    if published is None:
        return None
    return published.ratio


def _compared_runs(pair: PairwiseComparison) -> Hashable:
    """Equal for pairs of the same runs by the same column."""
    return pair.column, tuple(row.run_id for row in pair.choice_rows), tuple(row.run_id for row in pair.baseline_rows)


def choice_color(measured: MeasuredComparison, groups: Sequence[Group], looks: Looks) -> str:
    """The colour that the choice has in other plots; the first one if none shows it."""
    choice = settings_label(measured.planned.choice)
    if choice in MODES:
        return HUES[MODES.index(choice)]
    rows = [pair.choice_rows[0] for pair in measured.pairs]
    for group in groups:
        for candidate in group.candidates:
            if candidate.label in looks and any(row in candidate.rows for row in rows):
                return looks[candidate.label].color
    return HUES[0]


@rc_context(STYLE)
def plot_claims(marks: Sequence[ClaimMark], name: str) -> Plot | None:
    """Each ratio with its interval, and a diamond for the published one; None without any."""
    if not marks:
        return None
    entries = [(mark.label, ratio_text(mark.ratio)) for mark in marks]
    rows = labelled_rows(entries)
    rows.axes.axvline(1, color=MUTED, linewidth=1)
    published = [mark.published for mark in marks if mark.published is not None]
    draw_intervals(rows.axes, rows.ys, [mark.ratio for mark in marks], [mark.color for mark in marks])
    left, right = ratio_limits([mark.ratio for mark in marks] + [Ratio(value) for value in published])
    rows.axes.set_xlim(min(left, rows.axes.get_xlim()[0]), max(right, rows.axes.get_xlim()[1]))
    for y, mark in zip(rows.ys, marks, strict=True):
        if mark.published is not None:
            rows.axes.plot([mark.published], [y], "D", color=INK, markersize=6, fillstyle="none")
    rows.axes.set_xlabel("times as fast, or as much")
    note = "With 95 % intervals where there are repeats; within its band a difference may be chance."
    if published:
        note += " Diamond: as published."
    title = "Claimed and measured" if published else "Measured"
    return Plot(title, figure_svg(rows.figure, name, plot_description(title, entries)), note)


@rc_context(STYLE)
def plot_claims_small(marks: Sequence[ClaimMark], name: str) -> str | None:
    """The same as a small SVG without labels; None without any, or with more than it can show."""
    if not marks or len(marks) > MAX_SMALL_LINES:
        return None
    figure, axes = _small_axes(len(marks))
    axes.set(xscale="log", xlim=SMALL_RANGE)
    axes.xaxis.set_minor_locator(NullLocator())
    _draw_ticks(axes, SMALL_TICKS)
    axes.axvline(1, color=MUTED, linewidth=1)
    for number, mark in enumerate(marks):
        _draw_small(axes, SMALL_LINE * (number + 1), mark)
    entries = [(mark.label, ratio_text(mark.ratio)) for mark in marks]
    return figure_svg(figure, name, plot_description("Claimed and measured", entries))


@rc_context(STYLE)
def plot_fractions_small(comparisons: Sequence[MeasuredComparison], name: str) -> str | None:
    """Both sides of each pair of fractions, each from its lowest to its highest run, as a small SVG without labels;
    None without any, or with more than it can show."""
    pairs: list[PairwiseComparison] = []
    for measured in comparisons:
        pairs += [pair for pair in measured.pairs if pair.of_fraction]
    if not pairs or len(pairs) > MAX_SMALL_LINES:
        return None
    figure, axes = _small_axes(len(pairs))
    axes.set_xlim(-3, 103)
    _draw_ticks(axes, SMALL_PERCENTS)
    for number, pair in enumerate(pairs):
        y = SMALL_LINE * (number + 1)
        draw_range(axes, y + SMALL_SHIFT, pair.baseline_values, MUTED, size=3)
        draw_range(axes, y - SMALL_SHIFT, pair.choice_values, HUES[0], size=3)
    entries = [(pair_label(pair), measured_text(pair)) for pair in pairs]
    return figure_svg(figure, name, plot_description("Measured", entries))


def _small_axes(num_lines: int) -> tuple[Figure, Axes]:
    height = SMALL_LINE * (num_lines + 1)
    figure = Figure(figsize=(SMALL_WIDTH / 72, (height + 14) / 72))
    figure.patch.set_visible(False)
    axes = figure.add_axes((0.02, 14 / (height + 14), 0.96, height / (height + 14)))
    axes.patch.set_visible(False)
    axes.set_ylim(height, 0)
    axes.yaxis.set_visible(False)
    return figure, axes


def _draw_ticks(axes: Axes, ticks: Sequence[float]) -> None:
    """Label these numbers of the x axis, with a vertical line at each."""
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.tick_params(axis="x", labelsize=8, pad=1)
    for tick in ticks:
        axes.axvline(tick, color=RULE, linewidth=1)


def _draw_small(axes: Axes, y: float, mark: ClaimMark) -> None:
    """A line for the interval, a point for the ratio, a diamond for the published one; at the edge if beyond it."""
    if mark.ratio.low is not None and mark.ratio.high is not None:
        axes.plot([_within(mark.ratio.low), _within(mark.ratio.high)], [y, y], color=mark.color, linewidth=2)
    shape = "o"
    if mark.ratio.value > SMALL_RANGE[1]:
        shape = ">"
    elif mark.ratio.value < SMALL_RANGE[0]:
        shape = "<"
    axes.plot([_within(mark.ratio.value)], [y], shape, color=mark.color, markersize=4.5)
    if mark.published is not None:
        axes.plot([_within(mark.published)], [y], "D", color=INK, markersize=4.5, fillstyle="none")


def _within(value: float) -> float:
    low, high = SMALL_RANGE
    return min(max(value, low * 1.06), high / 1.06)
