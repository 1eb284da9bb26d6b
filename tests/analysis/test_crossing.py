"""The crossing of two lines through repeats, with its interval."""

import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.conftest import ROOT
from trainkit.analysis.choices import rows_with
from trainkit.analysis.crossing import Crossing, Line, Times, difference_at, find_crossing, fit_line
from trainkit.analysis.dropping import step_times_ms
from trainkit.analysis.grouping import requested
from trainkit.analysis.studies import read_other_claims
from trainkit.results.runs import read_rows

MEASUREMENTS = ROOT / "measurements"
NUMBERS = (1, 5, 10, 15, 20, 25, 30)
finite = st.floats(0.1, 100)
# Published by a tutorial, single runs of one function of n operations: microseconds a call.
PUBLISHED = {
    "eager": (13.32, 40.45, 86.44, 109.90, 137.26, 167.79, 225.63),
    "static": (37.67, 40.32, 36.71, 42.39, 36.33, 36.98, 42.36),
}


def fitted(times: Times) -> Line:
    line = fit_line(times)
    assert line is not None
    return line


def exact(intercept: float, slope: float) -> Times:
    return {number: [intercept + slope * number] * 3 for number in NUMBERS}


def noisy(intercept: float, slope: float, spread: float, chance: np.random.Generator) -> dict[float, list[float]]:
    """Three repeats, longer times with a wider spread."""
    times = {}
    for number in NUMBERS:
        times[number] = list((intercept + slope * number) * (1 + spread * chance.standard_normal(3)))
    return times


def crossing_of(first: Times, second: Times) -> Crossing:
    return find_crossing(fitted(first), fitted(second), NUMBERS[0], NUMBERS[-1])


@given(at=st.floats(1.5, 29.5), eager_slope=finite, compiled_slope=finite, level=st.floats(200, 1000))
def test_exact_lines_cross_where_they_cross(at, eager_slope, compiled_slope, level):
    assume(abs(eager_slope - compiled_slope) > 0.1)
    lines = [exact(level - slope * at, slope) for slope in (eager_slope, compiled_slope)]
    crossing = crossing_of(*lines)
    assert (crossing.value, crossing.low, crossing.high) == pytest.approx((at, at, at), rel=1e-5)


@given(seed=st.integers(0, 2**32 - 1), factor=finite)
def test_a_crossing_has_no_unit_and_no_order(seed, factor):
    chance = np.random.default_rng(seed)
    eager, static = noisy(10, 7, 0.05, chance), noisy(80, 0, 0.05, chance)
    crossing = crossing_of(eager, static)
    assert crossing.low is not None
    assert crossing.low < crossing.value < crossing.high
    in_other_unit = [{n: [factor * t for t in repeats] for n, repeats in times.items()} for times in (eager, static)]
    for other in (crossing_of(*in_other_unit), crossing_of(static, eager)):
        assert vars(other) == pytest.approx(vars(crossing), rel=1e-6)


def test_the_covariance_is_that_of_leaving_out_each_repeat_once():
    times = noisy(10, 7, 0.1, np.random.default_rng(0))
    points = [(number, time) for number, repeats in times.items() for time in repeats]
    slope, intercept = np.polyfit(*np.transpose(points), 1)
    line = fitted(times)
    assert (line.intercept, line.slope) == pytest.approx((intercept, slope))
    covariance = np.zeros((2, 2))
    for left_out in range(len(points)):
        others = points[:left_out] + points[left_out + 1 :]
        change = np.polyfit(*np.transpose(others), 1)[::-1] - [intercept, slope]
        covariance += np.outer(change, change)
    assert line.covariance == pytest.approx(covariance)


def test_the_interval_holds_the_crossing_as_often_as_it_says():
    chance = np.random.default_rng(0)
    num_sweeps, num_held = 400, 0
    for _ in range(num_sweeps):
        crossing = crossing_of(noisy(10, 7, 0.1, chance), noisy(80, 0, 0.1, chance))
        num_held += crossing.low <= 10 <= crossing.high
    assert 0.93 <= num_held / num_sweeps <= 0.98


def test_the_interval_holds_the_difference_as_often_as_it_says():
    chance = np.random.default_rng(0)
    num_sweeps, num_held = 400, 0
    for _ in range(num_sweeps):
        lines = fitted(noisy(60, 0.2, 0.1, chance)), fitted(noisy(40, 0, 0.1, chance))
        difference = difference_at(15, *lines)
        assert difference.value == -difference_at(15, *reversed(lines)).value
        num_held += difference.low <= 23 <= difference.high
    assert 0.93 <= num_held / num_sweeps <= 0.98


def test_lines_that_do_not_cross_within_what_was_measured_have_no_crossing():
    assert crossing_of(exact(100, 7), exact(80, 0)) == Crossing(None, None, None, excluded=True)
    assert crossing_of(exact(100, 7), exact(80, 7)) == Crossing(None, None, None)
    near_the_end = crossing_of(noisy(10, 7, 0.1, np.random.default_rng(0)), exact(18, 0))
    assert near_the_end.low is None
    assert near_the_end.value < near_the_end.high < 5
    assert not near_the_end.excluded


def test_lines_of_slopes_that_may_be_equal_have_a_crossing_without_ends():
    chance = np.random.default_rng(1)
    crossing = crossing_of(noisy(100, 0.1, 0.2, chance), noisy(100, 0, 0.2, chance))
    assert (crossing.low, crossing.high, crossing.excluded) == (None, None, False)


def test_two_numbers_are_no_line():
    assert fit_line({1: [1.0, 1.1], 10: [2.0, 2.1]}) is None


def test_the_published_figures_cross_at_half_of_what_was_said_of_them():
    eager, static = ({n: [us] for n, us in zip(NUMBERS, published, strict=True)} for published in PUBLISHED.values())
    crossing = crossing_of(eager, static)
    assert (crossing.value, crossing.low, crossing.high) == pytest.approx((4.51, 2.78, 5.81), abs=0.01)
    slope = fitted(static).slope_interval
    assert slope.low < 0 < slope.high  # flat


def measured_line(of_one_shape: bool, dynamic: str) -> Line:
    """The line through the measured times of a chain of statements, in us, for calls back to back."""
    operator = "=" if of_one_shape else "!="
    choice = f"forward.timing=stream data.batch_sizes{operator}null compile.mode=default compile.dynamic={dynamic}"
    times: dict[float, list[float]] = {}
    for row in rows_with(choice, read_rows(MEASUREMENTS / "statement_chain.jsonl")):
        times.setdefault(float(requested(row)["model.num_ops"]), []).extend(1000 * ms for ms in step_times_ms([row]))
    return fitted(times)


def test_the_claim_about_the_cost_of_dynamic_shapes_has_the_figures_of_the_rows():
    claims = read_other_claims(MEASUREMENTS / "claims.yaml")
    (claim,) = [claim for claim in claims if claim.claim.startswith("Dynamic shapes cost")]
    static, static_ten = measured_line(True, "false"), measured_line(False, "false")
    dynamic, dynamic_ten = measured_line(True, "true"), measured_line(False, "true")
    figures = [difference_at(number, dynamic_ten, static) for number in (15, 1, 30)]
    figures += [difference_at(15, dynamic, static), difference_at(15, static_ten, dynamic_ten)]
    texts = re.findall(r"-?\d+ \[-?\d+, -?\d+\]", claim.measured)
    assert texts == [f"{figure.value:.0f} [{figure.low:.0f}, {figure.high:.0f}]" for figure in figures]
    assert figures[0].high < 25  # did not hold
