"""matplotlib's figures as SVG elements inside a page, or as files.

Text stays text. There is no background, and colours are CSS variables. The same figure gives the same SVG.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from xml.etree import ElementTree

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator

from trainkit.formatting import clean, fixed
from trainkit.report.plots.axes import PLOT_WIDTH
from trainkit.report.plots.palette import COLORS, FONT, VARIABLES

CHAR_WIDTH = 0.6 * FONT  # px, about
MAX_DECIMALS = 8


@dataclass(frozen=True)
class Plot:
    """An SVG element, its title and a note on how to read it; `keys` are (label, figure) of the settings in it."""

    title: str
    svg: str
    note: str = ""
    keys: tuple[tuple[str, str], ...] = ()


def plot_description(title: str, entries: Iterable[tuple[str, str]]) -> str:
    """The text of a plot for people who don't see it: its labels and figures."""
    texts = [f"{label} {figure_text}".strip() for label, figure_text in entries]
    return clean(f"{title}: {'; '.join(texts)}")


def figure_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an SVG element for HTML. Its ids begin with the name."""
    for axes in figure.axes:
        _label_ticks(axes.xaxis)
        _label_ticks(axes.yaxis)
        _keep_within(axes.xaxis)
    file = BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    referenced = _referenced_ids(root)
    for element in root.iter():
        element[:] = [child for child in element if _local_name(child.tag) not in ("metadata", "style")]
        element.tag, element.tail = _local_name(element.tag), None
        attributes = dict(element.attrib)
        element.attrib.clear()
        for qualified_name, value in attributes.items():
            key = _local_name(qualified_name)
            if key != "id" or value in referenced:
                element.attrib[key] = _adapted(key, value, name)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": description}
    return ElementTree.tostring(root, encoding="unicode")


def standalone_svg(svg: str, width: int = PLOT_WIDTH) -> str:
    """The element as a file, with its colours and its width in px."""
    style = f"<style>{COLORS}svg {{ background: var(--paper); font-family: system-ui, sans-serif; }}</style>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
    return svg.replace("<svg ", head, 1).replace(">", f">{style}", 1) + "\n"


def _referenced_ids(root: ElementTree.Element) -> set[str]:
    ids = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            if _local_name(key) in ("href", "clip-path"):
                ids.update(re.findall(r"#(\w+)", value))
    return ids


def _local_name(name: str) -> str:
    # HTML knows the names inside <svg> without their namespace.
    return name.rpartition("}")[2]


def _adapted(key: str, value: str, name: str) -> str:
    """The value of an attribute for a page. No attribute holds a label, so labels do not change."""
    if key == "id":
        return f"{name}-{value}"
    if key in ("href", "clip-path"):
        return value.replace("#", f"#{name}-")
    if key == "style":
        without_family = re.sub(r"font-family:[^;]*;?", "", value)
        with_size = re.sub(r"font: ([\d.]+px)[^;]*", r"font-size: \1", without_family)
        return re.sub("|".join(VARIABLES), lambda color: f"var(--{VARIABLES[color[0]]})", with_size)
    return " ".join(value.split())


def _label_ticks(axis: Axis) -> None:
    """Fix the ticks at their positions, and format their labels as all numbers are."""
    low, high = sorted(axis.get_view_interval())
    ticks = [value for value in axis.get_majorticklocs() if low <= value <= high]
    digits = _num_step_decimals(ticks)
    labels = []
    for value in ticks:
        if axis.get_scale() == "log":
            digits = _num_decimals(value)
        labels.append(fixed(value, digits))
    axis.set_major_locator(FixedLocator(ticks))  # set_ticks would lay the axis out once more
    axis.set_major_formatter(FixedFormatter(labels))


def _num_decimals(value: float) -> int:
    """The decimals that a number has: 0.05, 0.2, 1."""
    for digits in range(MAX_DECIMALS):
        if math.isclose(round(value, digits), value):
            return digits
    return MAX_DECIMALS


def _num_step_decimals(ticks: Sequence[float]) -> int:
    """The decimals that tell neighbouring ticks apart."""
    if len(ticks) < 2:
        return 0
    return max(0, math.ceil(-math.log10(ticks[1] - ticks[0]) - 1e-9))


def _keep_within(axis: Axis) -> None:
    """Align the labels at the edges of the figure so that they end there."""
    figure = axis.get_figure(root=True)
    assert figure is not None
    for label in axis.get_majorticklabels():
        x = axis.axes.transData.transform((label.get_position()[0], 1))[0] / figure.bbox.width * PLOT_WIDTH
        half_width = CHAR_WIDTH / 2 * len(label.get_text())
        if x < half_width:
            label.set_horizontalalignment("left")
        elif x > PLOT_WIDTH - half_width:
            label.set_horizontalalignment("right")
        else:
            label.set_horizontalalignment("center")
