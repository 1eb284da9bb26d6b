"""Medians over repeats and their ratios as text."""

import math

from trainkit.analysis.candidates import Spread
from trainkit.formatting import factor, fixed
from trainkit.stats import Ratio


def median_of(spread: Spread | None) -> float | None:
    if spread is None:
        return None
    return spread.median


def direction_text(higher_is_better: bool) -> str:
    return "higher is better" if higher_is_better else "lower is better"


def range_text(spread: Spread | None, decimals: int) -> str:
    """The lowest and the highest of several repeats; "" if they are equal."""
    if spread is None or spread.low == spread.high:
        return ""
    return f"{fixed(spread.low, decimals)}-{fixed(spread.high, decimals)}"


def interval_text(ratio: Ratio | None, separator: str = "-") -> str:
    """The interval of a ratio; "" if it is unknown or a single value, as eager's own."""
    if ratio is None or ratio.low is None or ratio.high is None or ratio.low == ratio.high:
        return ""
    end = distinct_from_1 if ratio.measurable else factor
    return f"{end(ratio.low)}{separator}{end(ratio.high)}"


def factor_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return "no eager row"
    return f"{factor(ratio.value)}x"


def ratio_text(ratio: Ratio | None) -> str:
    """A ratio, with its interval if it is known: `1.45x [1.43, 1.47]`."""
    interval = interval_text(ratio, ", ")
    if not interval:
        return factor_text(ratio)
    return f"{factor_text(ratio)} [{interval}]"


def distinct_from_1(value: float) -> str:
    """A factor, with as many decimals as show on which side of 1 it lies."""
    text = factor(value)
    if text != "1.00":
        return text
    return fixed(value, -math.floor(math.log10(abs(value - 1))))
