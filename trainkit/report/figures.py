"""How medians over repeats and their ratios are said."""

import math

from trainkit.analysis.candidates import Spread
from trainkit.formatting import factor, fixed
from trainkit.stats import Ratio


def median_of(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median


def range_text(spread: Spread | None, decimals: int) -> str:
    """The lowest and the highest of several repeats; "" where they are one value."""
    if spread is None or spread.low == spread.high:
        return ""
    return f"{fixed(spread.low, decimals)}-{fixed(spread.high, decimals)}"


def interval_text(speedup: Ratio | None, between: str = "-") -> str:
    """The interval of a ratio; "" where it is unknown, and for eager's own."""
    if speedup is None or speedup.low is None or speedup.high is None or speedup.low == speedup.high:
        return ""
    end = _told_from_1 if speedup.measurable else factor
    return f"{end(speedup.low)}{between}{end(speedup.high)}"


def _told_from_1(value: float) -> str:
    """A factor, in as many decimals as show on which side of 1 it is."""
    return factor(value) if factor(value) != "1.00" else fixed(value, -math.floor(math.log10(abs(value - 1))))


def factor_text(speedup: Ratio | None) -> str:
    return "no eager row" if speedup is None else f"{factor(speedup.value)}x"


def ratio_text(speedup: Ratio | None) -> str:
    """A ratio in words, with its interval where it is known."""
    between = interval_text(speedup, ", ")
    return f"{factor_text(speedup)} [{between}]" if between else factor_text(speedup)
