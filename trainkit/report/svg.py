"""matplotlib's figures as SVG elements that stand inside a page.

Their text is text, and no label is read as mathematics or as markup. They have no background, and their colours are
the CSS variables named in VARIABLES, which the page defines for light and dark. The same figure gives the same text.
"""

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from trainkit.formatting import clean, fixed

WIDTH = 340  # px of the viewBox: narrow, so that text of FONT px is about as large on a phone
FONT, LINE, BAR, GAP = 11, 14, 13, 5  # px: text, a line of it, the thickness of a bar, the space around it
CHARS = 52  # that fit into the width
ROUND = [1, 2, 5, 10]  # what ticks are multiples of
MOST_TICKS = 9  # at numbers that are asked
DASHES = ((), (6, 2.5), (1.5, 2))  # the second and the third round through the hues
# matplotlib knows no CSS: it draws in colours that nobody else uses, and they become variables afterwards.
HUES = [f"#a0000{n}" for n in range(7)]  # of settings
SHADES = [f"#b0000{n}" for n in range(6)]  # of parts
INK, MUTED, RULE, BAND, PAPER = "#c00000", "#c00001", "#c00002", "#c00003", "#c00004"
COLORS = Path(__file__).with_name("colors.css").read_text(encoding="utf-8")  # their values, for light and dark
VARIABLES = {INK: "ink", MUTED: "muted", RULE: "line", BAND: "band", PAPER: "paper"}
VARIABLES |= {color: f"{letter}{n}" for letter, of in (("s", HUES), ("p", SHADES)) for n, color in enumerate(of)}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "trainkit",
    "text.parse_math": False,
    "font.size": FONT,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.linewidth": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.labelcolor": MUTED,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.fontsize": FONT - 1,
    "legend.labelcolor": MUTED,
}


@dataclass(frozen=True)
class Look:
    """How a setting is drawn in every plot."""

    color: str
    dash: tuple[float, ...]

    @property
    def variable(self) -> str:
        return f"var(--{VARIABLES[self.color]})"

    @property
    def line(self) -> tuple[float, tuple[float, ...]] | str:
        return (0, self.dash) if self.dash else "solid"


def rows(words: Sequence[tuple[str, str]], head: int = 0) -> tuple[Figure, Axes, list[float]]:
    """A row for each label: the label, a word on the right, and below them the place of its bar, whose y is returned.

    One unit of y is one px; `head` lines stay free above the first row.
    """
    lines = [_wrapped(label, CHARS - 2 - len(word)) for label, word in words]
    heights = [LINE * len(of) + BAR + 2 * GAP for of in lines]
    figure, axes = _figure(head * LINE + sum(heights) + GAP, left=8, right=8, top=head * LINE)
    axes.set_ylim(sum(heights), -GAP)
    axes.yaxis.set_visible(False)
    axes.grid(axis="x")
    at, top = [], 0
    # Lines and bands of the axes end where there is text.
    beside: dict[str, Any] = {
        "transform": axes.get_yaxis_transform(),
        "bbox": {"facecolor": PAPER, "linewidth": 0, "pad": 1},
    }
    for of, (_, word), height in zip(lines, words, heights, strict=True):
        for n, line in enumerate(of):
            axes.text(0, top + LINE * (n + 1) - 4, line, **beside)
        axes.text(1, top + LINE - 4, word, ha="right", **beside)
        at.append(top + LINE * len(of) + BAR / 2 + GAP / 2)
        top += height
    return figure, axes, at


class _Wrapper(textwrap.TextWrapper):
    """Breaks lines within the name of a setting too, `trainer.activation_` and `checkpointing`, and in no number."""

    wordsep_re = re.compile(r"(\s+|(?<=\w[._,/-])(?=[^\W\d]))")


def _wrapped(label: str, width: int) -> list[str]:
    """At most five lines: the whole label stands in the page's table."""
    return _Wrapper(max(width, 16), max_lines=5, placeholder=" ...").wrap(clean(label)) or [""]


def ratio_scale(axes: Axes, of: str, low: float, high: float) -> None:
    """The axis "x" or "y" for ratios between these: logarithmic, so that twice and half are equally far from 1."""
    axis: Axis = {"x": axes.xaxis, "y": axes.yaxis}[of]
    ticks = LogLocator(subs=[1, 2, 5]) if high > 4 * low else MaxNLocator(5, steps=ROUND)
    axes.set(**{f"{of}scale": "log", f"{of}lim": (low, high)})
    axis.set_major_locator(FixedLocator(ticks.tick_values(low, high)))
    axis.set_minor_locator(NullLocator())


def number_scale(axes: Axes, numbers: Sequence[float]) -> None:
    """The x axis for these numbers, in their order: a tick at each of a few, logarithmic where they are far apart."""
    low, high = numbers[0], numbers[-1]
    if high > 64 * max(low, 1):
        low = max(low, 1)
        room = (high / low) ** 0.05
        axes.set(xscale="log", xlim=(low / room, high * room))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        room = 0.05 * (high - low)
        axes.set_xlim(low - room, high + room)
    if len(numbers) <= MOST_TICKS:
        axes.xaxis.set_major_locator(FixedLocator(numbers))


def moved(axes: Axes, right: float = 0.0, up: float = 0.0) -> Transform:
    """Where data is, so many px off."""
    return axes.transData + _px(axes, right, up)


def _px(axes: Axes, right: float, up: float) -> Transform:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return ScaledTranslation(right / 72, up / 72, figure.dpi_scale_trans)


def curve_axes(across: str, up: str, num_ticks: int, head: int = 0) -> tuple[Figure, Axes]:
    """Axes for curves over a count; `head` lines stay free above them."""
    figure, axes = _figure(190 + head * LINE, left=46, right=20, top=16 + head * LINE)
    axes.xaxis.set_major_locator(MaxNLocator(num_ticks, steps=ROUND, integer=True))
    axes.set_xlabel(across)
    axes.set_title(up, loc="left", x=-0.14, fontsize=FONT - 1, color=MUTED, pad=5)
    axes.grid(axis="y")
    return figure, axes


def _figure(height: float, left: float, right: float, top: float) -> tuple[Figure, Axes]:
    """Axes with so many px around them, and below them the room for ticks and a name."""
    below = 34
    figure = Figure(figsize=(WIDTH / 72, (height + below) / 72))
    figure.patch.set_visible(False)
    width, above = (WIDTH - left - right) / WIDTH, (height - top) / (height + below)
    axes = figure.add_axes((left / WIDTH, below / (height + below), width, above))
    axes.patch.set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=ROUND))
    return figure, axes


def legend(axes: Axes, entries: Sequence[tuple[str, float, str]], in_line: int = 3, up: int = 0) -> None:
    """Squares of a colour and an opacity with their words, so many in a line, above the axes and so many lines."""
    if entries:
        # matplotlib fills column by column, and is read line by line.
        by_line = [entry for n in range(in_line) for entry in entries[n::in_line]]
        squares = [Patch(facecolor=color, alpha=alpha, linewidth=0, label=word) for color, alpha, word in by_line]
        axes.legend(
            handles=squares,
            ncols=in_line,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            bbox_transform=axes.transAxes + _px(axes, 0, up * LINE),
            borderaxespad=0.2,
            borderpad=0,
            handlelength=0.9,
            handleheight=0.9,
            handletextpad=0.5,
            columnspacing=1.4,
            labelspacing=0.3,
        )


def svg_of(figure: Figure, name: str, finding: str) -> str:
    """The figure as an element for HTML: its ids begin with the name, and `finding` is what is read out."""
    for axes in figure.axes:
        _label_ticks(axes.xaxis)
        _label_ticks(axes.yaxis)
        _keep_within(axes.xaxis)
    file = BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    needed = set(re.findall(r"#(\w+)", " ".join(value for of in root.iter() for value in _references(of))))
    for element in root.iter():
        element[:] = [child for child in element if _local(child.tag) not in ("metadata", "style")]
        element.tag, element.tail = _local(element.tag), None
        written = {_local(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({k: _adapted(k, v, name) for k, v in written.items() if k != "id" or v in needed})
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": finding}
    return ElementTree.tostring(root, encoding="unicode")


def file_of(svg: str) -> str:
    """The element as a file of its own, which brings its colours and its width along."""
    style = f"<style>{COLORS}svg {{ background: var(--paper); font-family: system-ui, sans-serif; }}</style>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
    return svg.replace("<svg ", head, 1).replace(">", f">{style}", 1) + "\n"


def _references(element: ElementTree.Element) -> Iterable[str]:
    return (value for key, value in element.attrib.items() if _local(key) in ("href", "clip-path"))


def _local(name: str) -> str:
    # HTML knows the names inside <svg> without their namespace.
    return name.rpartition("}")[2]


def _adapted(key: str, value: str, name: str) -> str:
    """An attribute's value as the page needs it. Labels are in no attribute, so that none of them is changed."""
    if key == "id":
        return f"{name}-{value}"
    if key in ("href", "clip-path"):
        return value.replace("#", f"#{name}-")
    if key == "style":
        value = re.sub(r"font: ([\d.]+px)[^;]*", r"font-size: \1", re.sub(r"font-family:[^;]*;?", "", value))
        return re.sub("|".join(VARIABLES), lambda color: f"var(--{VARIABLES[color[0]]})", value)
    return " ".join(value.split())


def _label_ticks(axis: Axis) -> None:
    """The ticks keep their places and get labels written as all numbers are."""
    low, high = sorted(axis.get_view_interval())
    at = [value for value in axis.get_majorticklocs() if low <= value <= high]
    digits = [max(0, math.ceil(-math.log10(at[1] - at[0]) - 1e-9)) if len(at) > 1 else 0] * len(at)
    if axis.get_scale() == "log":  # each as many as it has: 0.05, 0.2, 1
        digits = [next(n for n in range(9) if n == 8 or math.isclose(round(value, n), value)) for value in at]
    axis.set_ticks(at, [fixed(value, n) for value, n in zip(at, digits, strict=True)])


def _keep_within(axis: Axis) -> None:
    """Labels at the edges of the figure end there."""
    figure = axis.get_figure(root=True)
    assert figure is not None
    for label in axis.get_majorticklabels():
        at = axis.axes.transData.transform((label.get_position()[0], 1))[0] / figure.bbox.width * WIDTH
        half = 0.3 * FONT * len(label.get_text())
        label.set_horizontalalignment("left" if at < half else "right" if at > WIDTH - half else "center")
