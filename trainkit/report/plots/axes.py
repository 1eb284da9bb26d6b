"""Axes for bars with labels above them, and for curves. Lengths are px of the SVG's viewBox."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from trainkit.formatting import clean
from trainkit.report.plots.palette import FONT, MUTED, PAPER

PLOT_WIDTH = 340  # narrow, so that text of FONT px is about as large on a phone
LINE, BAR, GAP = 17, 13, 5  # a line of text, the thickness of a bar, the space around it
BELOW = 40  # ticks and the name of the axis
LINE_CHARS = 48  # that fit into the width
LEGEND_CHARS = 45  # that fit beside a square
MIN_LABEL_CHARS, MAX_LABEL_LINES = 16, 5
TICK_STEPS = [1, 2, 5, 10]  # ticks are at multiples of these
MAX_NUMBER_TICKS = 9
LOG_RANGE = 64  # numbers further apart are drawn on a logarithmic axis
FAR_TIMES = 20  # times further apart, too: on a linear axis the shortest would lie on each other


@dataclass(frozen=True)
class LabelledRows:
    """Axes with a row for each label; `ys` are the centres of their bars. One unit of y is 1 px."""

    figure: Figure
    axes: Axes
    ys: list[float]


def labelled_rows(entries: Sequence[tuple[str, str]], head: int = 0, bar: float = BAR) -> LabelledRows:
    """A row for each (label, figure): the label, the figure on the right, and below them space for a bar of so many
    pixels.

    `head` lines stay free above the first row.
    """
    wrapped, heights = [], []
    for label, figure_text in entries:
        lines = _label_lines(label, LINE_CHARS - 2 - len(figure_text))
        wrapped.append(lines)
        heights.append(LINE * len(lines) + bar + 2 * GAP)
    figure, axes = _figure(head * LINE + sum(heights) + GAP, left=8, right=8, top=head * LINE)
    axes.set_ylim(sum(heights), -GAP)
    axes.yaxis.set_visible(False)
    axes.grid(axis="x")
    # Text hides the lines and bands of the axes behind it.
    text: dict[str, Any] = {
        "transform": axes.get_yaxis_transform(),
        "bbox": {"facecolor": PAPER, "linewidth": 0, "pad": 1},
    }
    ys, top = [], 0.0
    for lines, (_, figure_text), height in zip(wrapped, entries, heights, strict=True):
        for number, line in enumerate(lines):
            axes.text(0, top + LINE * (number + 1) - 4, line, **text)
        axes.text(1, top + LINE - 4, figure_text, ha="right", **text)
        ys.append(top + LINE * len(lines) + bar / 2 + GAP / 2)
        top += height
    return LabelledRows(figure, axes, ys)


class _Wrapper(textwrap.TextWrapper):
    """Breaks lines within the name of a setting too, `trainer.activation_` and `checkpointing`, but in no number nor
    behind its group, `ddp.`."""

    wordsep_re = re.compile(r"(\s+|(?<=\w[_,/-])(?=[^\W\d]))")


def _label_lines(label: str, width: int, max_lines: int = MAX_LABEL_LINES) -> list[str]:
    """The first lines of a label. The page's table has the whole label."""
    wrapper = _Wrapper(max(width, MIN_LABEL_CHARS), max_lines=max_lines, placeholder=" ...")
    return wrapper.wrap(clean(label)) or [""]


def curve_axes(x_title: str, y_title: str, num_ticks: int, head: int = 0) -> tuple[Figure, Axes]:
    """Axes for curves over a count; `head` lines stay free above them."""
    figure, axes = _figure(190 + head * LINE, left=54, right=20, top=18 + head * LINE)
    axes.xaxis.set_major_locator(MaxNLocator(num_ticks, steps=TICK_STEPS, integer=True))
    axes.set_xlabel(x_title)
    axes.set_title(y_title, loc="left", x=-0.2, fontsize=FONT, color=MUTED, pad=5)
    axes.grid(axis="y")
    return figure, axes


def _figure(height: float, left: float, right: float, top: float) -> tuple[Figure, Axes]:
    """Transparent axes with margins; below them there is space for ticks and a title."""
    figure = Figure(figsize=(PLOT_WIDTH / 72, (height + BELOW) / 72))
    figure.patch.set_visible(False)
    width, above = (PLOT_WIDTH - left - right) / PLOT_WIDTH, (height - top) / (height + BELOW)
    axes = figure.add_axes((left / PLOT_WIDTH, BELOW / (height + BELOW), width, above))
    axes.patch.set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=TICK_STEPS))
    return figure, axes


def set_ratio_scale(axes: Axes, axis_name: Literal["x", "y"], low: float, high: float) -> None:
    """Make an axis logarithmic, for ratios: twice and half are equally far from 1."""
    axis: Axis = axes.xaxis if axis_name == "x" else axes.yaxis
    ticks = LogLocator(subs=[1, 2, 5]) if high > 4 * low else MaxNLocator(5, steps=TICK_STEPS)
    axes.set(**{f"{axis_name}scale": "log", f"{axis_name}lim": (low, high)})
    axis.set_major_locator(FixedLocator(ticks.tick_values(low, high)))
    axis.set_minor_locator(NullLocator())


def set_log_scale(axes: Axes, x_limits: tuple[float, float], y_limits: tuple[float, float]) -> None:
    """Make both axes logarithmic, with ticks at few round numbers."""
    axes.set(xscale="log", yscale="log", xlim=x_limits, ylim=y_limits)
    for axis, (low, high) in ((axes.xaxis, x_limits), (axes.yaxis, y_limits)):
        ticks = LogLocator(subs=[1, 2, 5] if high < 30 * low else [1])
        axis.set_major_locator(FixedLocator(ticks.tick_values(low, high)))
        axis.set_minor_locator(NullLocator())


def set_time_scale(axes: Axes, times: Sequence[float]) -> None:
    """Fit the y axis to ascending times, from 0 on, or logarithmic if they are far apart."""
    shortest, longest = times[0], times[-1]
    if shortest <= 0 or longest < FAR_TIMES * shortest:
        axes.set_ylim(0, 1.05 * longest)
        return
    set_ratio_scale(axes, "y", shortest / 1.2, 1.2 * longest)


def set_number_scale(axes: Axes, numbers: Sequence[float]) -> None:
    """Fit the x axis to ascending numbers: a tick at each of a few, logarithmic if they are far apart."""
    low, high = numbers[0], numbers[-1]
    if far_apart(numbers):
        low = max(low, 1)
        margin = (high / low) ** 0.05
        axes.set(xscale="log", xlim=(low / margin, high * margin))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.05 * (high - low)
        axes.set_xlim(low - margin, high + margin)
    if len(numbers) <= MAX_NUMBER_TICKS:
        axes.xaxis.set_major_locator(FixedLocator(numbers))


def far_apart(numbers: Sequence[float]) -> bool:
    """Whether ascending numbers need a logarithmic axis."""
    return numbers[-1] > LOG_RANGE * max(numbers[0], 1)


def shifted(axes: Axes, right: float = 0.0, up: float = 0.0) -> Transform:
    """The transform of data coordinates, shifted by some px."""
    return axes.transData + _shift(axes, right, up)


def _shift(axes: Axes, right: float, up: float) -> Transform:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return ScaledTranslation(right / 72, up / 72, figure.dpi_scale_trans)


@dataclass(frozen=True)
class LegendEntry:
    """A square of a colour, and its label."""

    color: str
    label: str
    alpha: float = 1.0


def add_legend(axes: Axes, entries: Sequence[LegendEntry], num_columns: int = 3, up: int = 0) -> None:
    """Add a legend above the axes, `up` lines higher. That of one column begins where the figure does."""
    if not entries:
        return
    left = -PLOT_WIDTH * axes.get_position().x0 if num_columns == 1 else 0.0
    squares = []
    for column in range(num_columns):  # matplotlib fills column by column, people read line by line
        for entry in entries[column::num_columns]:
            label = _label_lines(entry.label, LEGEND_CHARS, max_lines=1)[0]
            squares.append(Patch(facecolor=entry.color, alpha=entry.alpha, linewidth=0, label=label))
    axes.legend(
        handles=squares,
        ncols=num_columns,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        bbox_transform=axes.transAxes + _shift(axes, left, up * LINE),
        borderaxespad=0.2,
        borderpad=0,
        handlelength=0.9,
        handleheight=0.9,
        handletextpad=0.5,
        columnspacing=1.4,
        labelspacing=0.3,
    )
