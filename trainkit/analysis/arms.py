"""The arms of a race: their figures, and what judges those that jump between two values, as launch-bound steps do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

LEAST_JUMP = 0.05  # relative: closer peaks do not mislead
TIMES_SCATTER = 4  # the jump between two peaks, over the scatter around both


@dataclass
class Arm:
    """A candidate of a race, with its figures in the order of their measurement.

    `final_figures` are those of the final between the last two arms. `cost` decides between equally good arms: the
    cheapest wins. `excluded` is the reason why the arm cannot win: it failed, or breaks a constraint.
    """

    name: str
    cost: float = 0.0
    figures: list[float] = field(default_factory=list)
    final_figures: list[float] = field(default_factory=list)
    excluded: str | None = None

    @property
    def all_figures(self) -> list[float]:
        return self.figures + self.final_figures

    @property
    def is_unstable(self) -> bool:
        return len(self.logs) < len(self.all_figures)

    @property
    def can_win(self) -> bool:
        return self.excluded is None and bool(self.figures)

    @property
    def logs(self) -> np.ndarray:
        """The logs of the figures that judge the arm: of all, or of the slower of two peaks."""
        return _judged(tuple(self.all_figures))[0]

    @property
    def mean_log(self) -> float:
        return _judged(tuple(self.all_figures))[1]


@dataclass(frozen=True)
class Turn:
    """The next arm to measure, and whether its figure belongs to the final."""

    arm: Arm
    is_final: bool

    def record(self, figure: float) -> None:
        figures = self.arm.final_figures if self.is_final else self.arm.figures
        figures.append(figure)


@lru_cache(maxsize=1000)
def _judged(figures: tuple[float, ...]) -> tuple[np.ndarray, float]:
    """The logs of the figures that judge an arm, and their mean."""
    logs = np.log(slower_peak(figures))
    return logs, float(logs.mean())


def slower_peak(figures: Sequence[float]) -> list[float]:
    """The figures around the higher of two values, or all figures if they do not lie around two.

    Two peaks: a gap splits the figures into two groups of two or more, is at least LEAST_JUMP, and TIMES_SCATTER times
    the scatter within both groups. A single outlier is noise.
    """
    ordered = sorted(figures)
    for size in range(2, len(ordered) - 1):
        gap = math.log(ordered[size] / ordered[size - 1])
        scatter = math.log(ordered[-1] / ordered[0]) - gap
        if gap > math.log1p(LEAST_JUMP) and gap > TIMES_SCATTER * scatter:
            return ordered[size:]
    return ordered
