"""The number at which the times of two settings cross in a sweep over it, by a straight line through each.

A line is fitted to all repeats by least squares. Its covariance is HC3 (MacKinnon and White 1985, "Some
heteroskedasticity-consistent covariance matrix estimators with improved finite sample properties"), because longer
times also spread more. The interval of the crossing is Fieller's (1954, "Some problems in interval estimation"): the
crossing is a ratio, of the distance of the lines at 0 to the difference of their slopes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from trainkit.stats import CONFIDENCE, Estimate

MIN_NUMBERS = 3
Times = Mapping[float, Sequence[float]]  # of the repeats, by the number


@dataclass(frozen=True, eq=False)
class Line:
    """The mean time at a number x is `intercept + slope * x`. `covariance` is that of (intercept, slope), and `freedom`
    its degrees of freedom."""

    intercept: float
    slope: float
    covariance: np.ndarray
    freedom: int

    @property
    def slope_interval(self) -> Estimate:
        half_width = _student_t(self.freedom) * math.sqrt(float(self.covariance[1, 1]))
        return Estimate(self.slope, self.slope - half_width, self.slope + half_width)

    def at(self, number: float) -> float:
        return self.intercept + self.slope * number


@dataclass(frozen=True)
class Crossing:
    """The number at which two lines cross, with its 95 % interval. None: not within the numbers that were measured.
    `excluded`: none of these is in the interval."""

    value: float | None
    low: float | None
    high: float | None
    excluded: bool = False


def fit_line(times: Times) -> Line | None:
    """The line through the repeats; None with fewer than MIN_NUMBERS numbers."""
    if len(times) < MIN_NUMBERS:
        return None
    xs: list[float] = []
    ys: list[float] = []
    for number, repeats in times.items():
        xs += [number] * len(repeats)
        ys += repeats
    design = np.column_stack([np.ones(len(xs)), xs])
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ ys
    leverages = np.einsum("ij,jk,ik->i", design, inverse, design)
    # The change of the coefficients when one repeat is left out.
    changes = (design @ inverse) * ((ys - design @ coefficients) / (1 - leverages))[:, None]
    intercept, slope = coefficients
    return Line(float(intercept), float(slope), changes.T @ changes, len(xs) - 2)


def find_crossing(first: Line, second: Line, lowest: float, highest: float) -> Crossing:
    """The number between the lowest and the highest at which two independent lines cross."""
    distance, slope = first.intercept - second.intercept, first.slope - second.slope
    if slope == 0:
        return Crossing(None, None, None)
    low, high = _fieller(distance, slope, first.covariance + second.covariance, min(first.freedom, second.freedom))
    measured: list[float | None] = []
    for number in (-distance / slope, low, high):
        if lowest <= number <= highest:
            measured.append(number)
        else:
            measured.append(None)
    value, low_end, high_end = measured
    return Crossing(value, low_end, high_end, excluded=high < lowest or low > highest)


def difference_at(number: float, line: Line, other: Line) -> Estimate:
    """The time of one of two independent lines less the other's, at a number."""
    difference = line.at(number) - other.at(number)
    place = np.array([1.0, number])
    variance = float(place @ (line.covariance + other.covariance) @ place)
    half_width = _student_t(min(line.freedom, other.freedom)) * math.sqrt(variance)
    return Estimate(difference, difference - half_width, difference + half_width)


def _fieller(distance: float, slope: float, covariance: np.ndarray, freedom: int) -> tuple[float, float]:
    """The interval of -distance / slope: the numbers x at which distance + slope * x may be 0. It has no ends, they are
    infinite, if the slope may be 0."""
    squared_t = _student_t(freedom) ** 2
    squared = slope**2 - squared_t * float(covariance[1, 1])
    if squared <= 0:
        return -math.inf, math.inf
    linear = distance * slope - squared_t * float(covariance[0, 1])
    constant = distance**2 - squared_t * float(covariance[0, 0])
    root = math.sqrt(max(linear**2 - squared * constant, 0.0))
    return (-linear - root) / squared, (-linear + root) / squared


def _student_t(freedom: int) -> float:
    return float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2))
