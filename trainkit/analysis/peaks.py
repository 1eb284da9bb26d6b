"""Figures that jump between two values, as those of launch-bound steps do."""

import math
from collections.abc import Sequence

LEAST_JUMP = 0.05  # relative: closer peaks do not mislead
TIMES_SCATTER = 4  # the jump between two peaks, over the scatter around both


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
