"""The interval claims a difference where there is one, and hardly ever where there is none."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trainkit.stats import MOST_REPEATS, Ratio, estimate, percentile, ratio, repeats_to_show, stratified_ratio

NOISE: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda drawn, n: drawn.normal(size=n),
    "heavy-tailed": lambda drawn, n: drawn.standard_t(3, size=n),
    "one-sided": lambda drawn, n: drawn.exponential(size=n),
    "drifting": lambda drawn, n: 0.3 * drawn.normal(size=n) + np.cumsum(0.7 * drawn.normal(size=n)),
}
# Median step times of ten processes of one setting on a shared machine with two cores.
MEASURED_MS = [1.824, 1.799, 1.849, 1.812, 1.836, 1.791, 1.858, 1.820, 1.843, 1.807]


@pytest.mark.parametrize("num_repeats", [2, 3, 5, 10])
@pytest.mark.parametrize("kind", NOISE)
def test_of_a_setting_compared_with_itself_at_most_5_percent_claim_a_difference(kind, num_repeats):
    drawn = np.random.default_rng(1)
    claims = 0
    for _ in range(400):
        times = 10.0 * np.exp(0.01 * NOISE[kind](drawn, 2 * num_repeats))
        claims += ratio(times[::2], times[1::2]).measurable is True  # interleaved, as the launcher runs them
    assert claims / 400 <= 0.05


@pytest.mark.parametrize("counts", [((1, 1), (1, 1), (1, 1)), ((3, 1), (1, 3)), ((2, 2), (2, 2)), ((5, 2), (1, 4))])
@pytest.mark.parametrize("kind", NOISE)
def test_of_a_setting_compared_with_itself_within_strata_at_most_5_percent_claim_a_difference(kind, counts):
    drawn = np.random.default_rng(4)
    claims = 0
    for _ in range(1000):
        strata = []
        for num_over, num_under in counts:
            times = drawn.uniform(5, 20) * np.exp(0.01 * NOISE[kind](drawn, num_over + num_under))
            drawn.shuffle(times)
            strata.append((times[:num_over], times[num_over:]))
        claims += stratified_ratio(strata).measurable is True
    assert claims / 1000 <= 0.065  # two standard errors of 1000 trials above


def test_the_interval_within_strata_is_that_of_a_paired_t_test_for_pairs():
    over, under = [2.0, 3.3, 4.2, 8.1], [1.9, 3.0, 4.1, 7.2]
    found = stratified_ratio([([one], [other]) for one, other in zip(over, under, strict=True)])
    interval = stats.ttest_rel(np.log(over), np.log(under)).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))


def test_of_200_splits_of_measured_times_at_most_5_percent_claim_a_difference():
    drawn = np.random.default_rng(2)
    splits = [drawn.permutation(MEASURED_MS) for _ in range(200)]
    assert sum(ratio(split[:5], split[5:]).measurable is True for split in splits) <= 10


@pytest.mark.parametrize(("num_repeats", "effect", "noise"), [(5, 0.03, 0.005), (2, 1.0, 0.01), (3, 0.3, 0.01)])
def test_a_difference_is_found(num_repeats, effect, noise):
    drawn = np.random.default_rng(3)
    found = 0
    for _ in range(100):
        fast, slow = np.exp(noise * drawn.normal(size=(2, num_repeats)))
        claim = ratio(slow * (1 + effect), fast)
        found += claim.measurable is True and claim.value > 1
    assert found >= 95


def test_the_interval_holds_the_true_ratio():
    drawn = np.random.default_rng(4)
    held = 0
    for _ in range(400):
        over, under = np.exp(0.02 * drawn.normal(size=(2, 4)))
        found = ratio(1.5 * over, under)
        held += found.low <= 1.5 <= found.high
    assert held / 400 >= 0.95


def test_one_repeat_has_a_value_and_no_interval():
    found = ratio([2.0], [1.0, 1.1])
    assert found.value == pytest.approx(2 / 1.05, rel=1e-2)
    assert (found.low, found.high, found.noise_floor, found.measurable) == (None,) * 4


def test_repeats_that_agree_to_the_last_digit_still_have_a_floor():
    assert ratio([1.001] * 3, [1.0] * 3).measurable is False
    assert ratio([1.01] * 3, [1.0] * 3).measurable is True


def test_slower_is_as_measurable_as_faster():
    noisy = [1.0, 1.3, 1.6]
    for times in (2, 2.5, 3, 4, 6):
        one, other = ratio([times * ms for ms in noisy], noisy), ratio(noisy, [times * ms for ms in noisy])
        assert one.measurable == other.measurable
        assert (one.low, one.high) == pytest.approx((1 / other.high, 1 / other.low))
    assert other.measurable is True


@pytest.mark.parametrize("num_repeats", [(2, 2), (3, 3), (5, 3), (2, 12)])
def test_the_interval_is_welchs(num_repeats):
    rng = np.random.default_rng(7)
    over, under = (np.exp(rng.normal(scale=scale, size=n)) for n, scale in zip(num_repeats, (0.1, 0.3), strict=True))
    found = ratio(over, under)
    welch = stats.ttest_ind(np.log(over), np.log(under), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((np.exp(welch.low), np.exp(welch.high)))


def test_the_same_figures_give_the_same_interval_and_many_of_them_one_at_all():
    assert ratio(MEASURED_MS[:5], MEASURED_MS[5:]) == ratio(MEASURED_MS[:5], MEASURED_MS[5:])
    many = np.exp(0.01 * np.random.default_rng(6).normal(size=(2, 200)))
    found = ratio(1.01 * many[0], many[1])
    assert found.low < found.value < found.high < found.low * 1.02


@pytest.mark.parametrize("kind", NOISE)
def test_of_differences_within_six_rounds_at_most_5_percent_leave_out_zero(kind):
    drawn = np.random.default_rng(5)
    claims = 0
    for _ in range(1000):
        one, other = NOISE[kind](drawn, 12).reshape(6, 2).T  # by turns, on a machine that may drift
        found = estimate(one - other)
        assert found.low <= found.value <= found.high
        claims += not found.low <= 0 <= found.high
    assert claims / 1000 <= 0.05


TIMES_MS = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=6)


def assert_same(first: Ratio, second: Ratio) -> None:
    """The same but for rounding, which may decide whether a difference on the very edge is measurable."""
    assert first.value == pytest.approx(second.value)
    for end, other in ((first.low, second.low), (first.high, second.high), (first.noise_floor, second.noise_floor)):
        assert end == (other if other is None else pytest.approx(other, rel=1e-6))
    if not on_the_edge(first):
        assert first.measurable == second.measurable


def on_the_edge(found: Ratio) -> bool:
    """Whether rounding decides if the difference is measurable."""
    if found.low is None or found.high is None or found.noise_floor is None:
        return False
    edges = [found.low, found.high, found.value * (1 + found.noise_floor), found.value / (1 + found.noise_floor)]
    return any(edge == pytest.approx(1, rel=1e-6) for edge in edges)


@given(TIMES_MS, TIMES_MS)
def test_the_ratio_the_other_way_round_is_the_inverse(over, under):
    found = ratio(under, over)
    inverse = replace(found, value=1 / found.value)
    if found.low is not None and found.high is not None:
        inverse = replace(inverse, low=1 / found.high, high=1 / found.low)
    assert_same(ratio(over, under), inverse)


@given(TIMES_MS, TIMES_MS, st.floats(1e-3, 1e3))
def test_the_unit_of_the_figures_does_not_matter(over, under, scale):
    found = ratio(over, under)
    scaled = ratio([scale * time_ms for time_ms in over], [scale * time_ms for time_ms in under])
    assert_same(scaled, found)


@given(TIMES_MS, TIMES_MS, st.randoms())
def test_the_order_of_the_repeats_does_not_matter(over, under, random):
    found = ratio(over, under)
    shuffled = ratio(random.sample(over, len(over)), random.sample(under, len(under)))
    assert_same(shuffled, found)


@given(TIMES_MS, TIMES_MS)
def test_the_interval_has_the_ratio_in_it_and_leaves_out_1_if_the_difference_is_measurable(over, under):
    found = ratio(over, under)
    if min(len(over), len(under)) < 2:
        assert (found.low, found.high, found.noise_floor, found.measurable) == (None,) * 4
        return
    assert found.low <= found.value * (1 + 1e-9)
    assert found.value <= found.high * (1 + 1e-9)
    if found.measurable:
        assert found.low > 1 or found.high < 1
        assert abs(np.log(found.value)) > np.log1p(found.noise_floor)


def test_percentiles_interpolate_and_nothing_has_none():
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile([], 50) is None


def test_the_repeats_that_show_a_difference_are_those_whose_noise_floor_is_below_it():
    scattered = [1.0, 1.02, 1.05, 0.99]
    deviation = np.log(scattered).std(ddof=1)

    def noise_floor(num_repeats):
        logs = np.resize([-1.0, 1.0], num_repeats) * deviation * np.sqrt((num_repeats - 1) / num_repeats)
        return ratio(np.exp(logs), np.exp(logs)).noise_floor

    for difference, count in ((0.05, 4), (0.014, 28)):
        assert repeats_to_show(difference, scattered) == count
        assert noise_floor(count) < difference < noise_floor(count - 2)
    assert repeats_to_show(0.05, [1.0, 5.0]) == MOST_REPEATS
    assert repeats_to_show(0.05, [1.0, 1.0]) == 2
