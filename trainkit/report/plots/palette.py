"""Colours and line styles of plots.

matplotlib knows no CSS. It draws in placeholder colours that nothing else uses; svg.py replaces them by CSS variables,
which colors.css defines for light and dark.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainkit.analysis.comparison import Group
from trainkit.analysis.scaling import Scaling
from trainkit.config.schema import Mode

FONT = 13  # px
DASHES = ((), (6, 2.5), (1.5, 2))  # the second and the third round through the hues
HUES = [f"#a0000{n}" for n in range(7)]  # of settings
SHADES = [f"#b0000{n}" for n in range(6)]  # of the parts of a bar
INK, MUTED, RULE, BAND, PAPER = "#c00000", "#c00001", "#c00002", "#c00003", "#c00004"
COLORS = Path(__file__).with_name("colors.css").read_text(encoding="utf-8")


def _variables() -> dict[str, str]:
    """The CSS variable of each placeholder colour."""
    variables = {INK: "ink", MUTED: "muted", RULE: "line", BAND: "band", PAPER: "paper"}
    for number, color in enumerate(HUES):
        variables[color] = f"s{number}"
    for number, color in enumerate(SHADES):
        variables[color] = f"p{number}"
    return variables


VARIABLES = _variables()
# For matplotlib.rc_context. Text stays text, and no label is read as mathematics.
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
    """The colour and the dashes of a setting in every plot."""

    color: str
    dash: tuple[float, ...]

    @property
    def variable(self) -> str:
        return f"var(--{VARIABLES[self.color]})"

    @property
    def line(self) -> tuple[float, tuple[float, ...]] | str:
        """matplotlib's line style."""
        return (0, self.dash) if self.dash else "solid"


Looks = Mapping[str, Look]
MODES = [mode.value for mode in Mode if mode.value != "eager"]  # each has a hue of its own, in every plot


def looks_of(groups: Iterable[Group], scalings: Iterable[Scaling] = ()) -> dict[str, Look]:
    """A look for each label, the same in all groups and scalings. A label that is a mode has the mode's hue, and so has
    the only one that begins with it; several that do have others. Eager has the colour of the text."""
    is_eager = {}
    for group in groups:
        for candidate in group.candidates:
            is_eager[candidate.label] = candidate.is_eager
    for scaling in scalings:
        for point in scaling.points:
            is_eager[point.label] = point.is_eager
    looks = {}
    mode_labels = _mode_labels(is_eager)
    modes = {label.partition(",")[0] for label in is_eager}
    taken = [number for number, mode in enumerate(MODES) if mode in modes]
    free = [number for number in range(len(DASHES) * len(HUES)) if number not in taken]
    eager_number = other_number = 0
    for label in sorted(is_eager):
        if is_eager[label]:
            looks[label] = Look(INK, DASHES[eager_number % len(DASHES)])
            eager_number += 1
        elif label in mode_labels:
            looks[label] = _look(MODES.index(mode_labels[label]))
        else:
            looks[label] = _look(free[other_number % len(free)])
            other_number += 1
    return looks


def _mode_labels(labels: Iterable[str]) -> dict[str, str]:
    """The modes by the label that has the mode's hue: the mode itself, or the only label that begins with it."""
    labels = list(labels)
    mode_labels = {}
    for mode in MODES:
        of_mode = [label for label in labels if label.partition(",")[0] == mode]
        if mode in of_mode:
            mode_labels[mode] = mode
        elif len(of_mode) == 1:
            mode_labels[of_mode[0]] = mode
    return mode_labels


def _look(number: int) -> Look:
    round_number, hue = divmod(number, len(HUES))
    return Look(HUES[hue], DASHES[round_number])
