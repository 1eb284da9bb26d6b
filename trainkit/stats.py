"""Ratios of measurements that were repeated in a few processes, and how sure they are.

The interval is Welch's t interval of the difference of mean logarithms (Welch 1947, "The generalization of Student's
problem when several different population variances are involved"), so a ratio is that of geometric means. It is
written out here because `scipy.stats`, which has it as `ttest_ind(..., equal_var=False)`, takes long to import.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

CONFIDENCE = 0.95
MOST_REPEATS = 1000  # that anyone would count
LEAST_FLOOR = 0.002  # relative: clocks and temperature alone move repeats as much, however well two of them agree


@dataclass(frozen=True)
class Ratio:
    """The ratio of the geometric means of two sets of repeats.

    `low` and `high` are a 95 % interval. `noise_floor` is the relative difference below which 95 % of the comparisons
    of the noisier side with itself stay. The ratio is `measurable` if the interval leaves out 1 and the larger side is
    above the other by more than the noise floor. All four are None if a side has fewer than two repeats.
    """

    value: float
    low: float | None = None
    high: float | None = None
    noise_floor: float | None = None
    measurable: bool | None = None


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval."""

    value: float
    low: float
    high: float


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """The ratio of two sets of repeats of positive figures, with its interval."""
    over, under = np.log(np.asarray(numerator, dtype=float)), np.log(np.asarray(denominator, dtype=float))
    difference = float(over.mean() - under.mean())
    if len(over) < 2 or len(under) < 2:
        return Ratio(math.exp(difference))
    noise = max(_half_width(over, over), _half_width(under, under))
    return _interval_ratio(difference, _half_width(over, under), noise)


def stratified_ratio(strata: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Ratio:
    """The ratio of two sets of repeats of positive figures, taken within strata: each has repeats of both sides.

    The difference of the mean logarithms is taken in each stratum; the mean of the differences has the weights of the
    least squares fit of a stratum's and a side's effect. The interval is Student's, by the residuals of this fit, so
    that it also tells how far the differences agree. With one stratum it is `ratio`.
    """
    if len(strata) == 1:
        return ratio(*strata[0])
    differences, weights = [], []
    squares, freedom = 0.0, -1
    for numerator, denominator in strata:
        over, under = np.log(np.asarray(numerator, dtype=float)), np.log(np.asarray(denominator, dtype=float))
        differences.append(float(over.mean() - under.mean()))
        weights.append(len(over) * len(under) / (len(over) + len(under)))
        squares += float(((over - over.mean()) ** 2).sum() + ((under - under.mean()) ** 2).sum())
        freedom += len(over) + len(under) - 1
    difference = float(np.average(differences, weights=weights))
    squares += float(np.dot(weights, (np.array(differences) - difference) ** 2))
    scatter = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(squares / freedom)
    fewest = min(sum(len(numerator) for numerator, _ in strata), sum(len(denominator) for _, denominator in strata))
    return _interval_ratio(difference, scatter / math.sqrt(sum(weights)), scatter * math.sqrt(2 / fewest))


def repeats_to_show(difference: float, repeats: Sequence[float]) -> int:
    """The repeats of each of two sides, as scattered as these at least two, that make a relative difference measurable;
    at most MOST_REPEATS."""
    scatter = float(np.log(np.asarray(repeats, dtype=float)).std(ddof=1))
    for count in range(2, MOST_REPEATS):
        quantile = float(special.stdtrit(2 * count - 2, (1 + CONFIDENCE) / 2))
        if quantile * scatter * math.sqrt(2 / count) < math.log1p(difference):
            return count
    return MOST_REPEATS


def means_differ(first: Sequence[float], second: Sequence[float]) -> bool | None:
    """Whether the means of two sets of repeats differ by more than Welch's interval, of figures of any sign.

    None with fewer than two repeats of a side, and for different means of repeats that are all equal: nothing tells
    how far chance moves them.
    """
    if len(first) < 2 or len(second) < 2:
        return None
    over, under = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    difference, half_width = abs(float(over.mean() - under.mean())), _half_width(over, under)
    if half_width == 0 and difference > 0:
        return None
    return difference > half_width


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile (0 to 100) by linear interpolation; None without a value."""
    if not values:
        return None
    return float(np.quantile(np.asarray(values, dtype=float), q / 100))


def estimate(rounds: Sequence[float]) -> Estimate:
    """The median over rounds, and the lowest and the highest of them.

    Whatever the distribution, the true median of n independent rounds lies between these with probability
    1 - 2**(1 - n), of six 97 %.
    """
    return Estimate(float(np.median(rounds)), float(min(rounds)), float(max(rounds)))


def _interval_ratio(difference: float, half_width: float, noise: float) -> Ratio:
    """The ratio with this logarithm and half of its interval. `noise` is half of the interval of the noisier side with
    itself."""
    noise_floor = max(LEAST_FLOOR, math.expm1(noise))
    measurable = abs(difference) > max(half_width, math.log1p(noise_floor))
    low, high = math.exp(difference - half_width), math.exp(difference + half_width)
    return Ratio(math.exp(difference), low, high, noise_floor, measurable)


def _half_width(over: np.ndarray, under: np.ndarray) -> float:
    """Half of Welch's interval of the difference of two means."""
    over_variance = float(over.var(ddof=1)) / len(over)
    under_variance = float(under.var(ddof=1)) / len(under)
    total = over_variance + under_variance
    if total == 0:
        return 0.0
    freedom = total**2 / (over_variance**2 / (len(over) - 1) + under_variance**2 / (len(under) - 1))
    return float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(total)
