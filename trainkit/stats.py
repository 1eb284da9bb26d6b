"""How sure a ratio of step times is, from a few repeated processes on each side. Pure mathematics.

A percentile bootstrap of two to five repeats is far too narrow: it resamples a spread that is itself underestimated.
So residuals are inflated by sqrt(n / (n - 1)) and the interval widened by Student's t over the normal quantile, as
Hesterberg (2015, "What Teachers Should Know About the Bootstrap", section 4.4) argues for small samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

CONFIDENCE = 0.95
LEAST_FLOOR = 0.002  # relative: clocks and temperature alone move repeats as much, however well two of them agree


@dataclass(frozen=True)
class Ratio:
    """How many times the denominator the numerator is: the ratio of the medians over repeats.

    `low` and `high` are a 95 % interval, and `noise_floor` is the relative difference that two arms of one setting
    show by chance (95 % of them less); None where a side has fewer than two repeats. `measurable`: the interval leaves
    out 1, and the larger side is above the other by more than the noise floor; None where that is unknown.
    """

    value: float
    low: float | None = None
    high: float | None = None
    noise_floor: float | None = None
    measurable: bool | None = None


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """The ratio of two sets of repeats of positive figures, with its interval. The same figures give the same one."""
    over, under = np.log(np.asarray(numerator, dtype=float)), np.log(np.asarray(denominator, dtype=float))
    middle = float(np.median(over) - np.median(under))
    value = float(np.exp(middle))
    if len(over) < 2 or len(under) < 2:
        return Ratio(value)
    half = _half_width(_residuals(over), _residuals(under))
    floor = noise_floor([numerator, denominator])
    assert floor is not None  # both have repeats
    measurable = abs(middle) > max(half, np.log1p(floor))
    return Ratio(value, float(np.exp(middle - half)), float(np.exp(middle + half)), floor, bool(measurable))


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile (0 to 100) by linear interpolation; None without a value."""
    if not values:
        return None
    return float(np.quantile(np.asarray(values, dtype=float), q / 100))


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval."""

    value: float
    low: float
    high: float


def estimate(rounds: Sequence[float]) -> Estimate:
    """The median over rounds, and the lowest and the highest of them: whatever their distribution, the true median of n
    independent rounds lies between these with probability 1 - 2**(1 - n), of six 97 %."""
    return Estimate(float(np.median(rounds)), float(min(rounds)), float(max(rounds)))


def noise_floor(arms: Sequence[Sequence[float]]) -> float | None:
    """The relative difference below which 95 % of the comparisons of a setting with itself stay: that of its noisiest
    arm with as many repeats. None where no arm has two."""
    floors = []
    for arm in arms:
        if len(arm) > 1:
            residuals = _residuals(np.log(np.asarray(arm, dtype=float)))
            floors.append(float(np.expm1(_half_width(residuals, residuals))))
    return max(LEAST_FLOOR, *floors) if floors else None


def _residuals(logs: np.ndarray) -> np.ndarray:
    return (logs - logs.mean()) * np.sqrt(len(logs) / (len(logs) - 1))


def _half_width(over: np.ndarray, under: np.ndarray) -> float:
    """Half of the interval around a difference of medians: the bootstrap's 95 % quantile of chance differences, times
    Student's t over the normal quantile, with Welch's degrees of freedom."""
    (values, chances), (others, others_chances) = _medians(over), _medians(under)
    variances = [float(c @ (v - c @ v) ** 2) for v, c in ((values, chances), (others, others_chances))]
    if sum(variances) == 0:
        return 0.0
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / (len(over) - 1) + variances[1] ** 2 / (len(under) - 1))
    widened = special.stdtrit(freedom, (1 + CONFIDENCE) / 2) / special.ndtri((1 + CONFIDENCE) / 2)
    apart, both = np.abs(np.subtract.outer(values, others)).ravel(), np.outer(chances, others_chances).ravel()
    order = np.argsort(apart)
    return float(widened * apart[order][np.searchsorted(np.cumsum(both[order]), CONFIDENCE * both.sum())])


def _medians(figures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the median of as many draws with replacement can be, and with what probability: exactly, so that no verdict
    hangs on which draws were made. Of n draws the k-th lowest is at most the i-th of n figures where k or more draws
    are; of an even number the median is the mean of the two in the middle."""
    figures, num, half = np.sort(figures), len(figures), len(figures) // 2
    up_to = np.arange(num + 1) / num
    if num % 2:
        return figures, np.diff(special.bdtrc(half, num, up_to))
    # The lower of the two is the i-th and the higher the j-th > i: half of the draws are the i-th at most, half the
    # j-th at least. Where both are the i-th: what is left of the lower one being that.
    lows = np.diff(up_to**half)
    chances = np.triu(special.comb(num, half) * np.outer(lows, lows[::-1]), 1)
    chances += np.diag(np.diff(special.bdtrc(half - 1, num, up_to)) - chances.sum(axis=1))
    likely = chances > 1e-9  # of a hundred figures nearly all pairs are not, and all of them would be many
    return (np.add.outer(figures, figures) / 2)[likely], chances[likely]
