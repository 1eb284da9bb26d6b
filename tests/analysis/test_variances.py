"""Variances of samples that share a variance, and of samples that do not."""

import math

import numpy as np
import pytest

from trainkit.analysis.variances import moderated_variances


def test_variances_are_shared_as_far_as_they_are_alike():
    chance = np.random.default_rng(0)
    alike = [chance.normal(0, 0.02, 3) for _ in range(30)] + [np.array([0.1])]
    shared = moderated_variances(alike)
    variances, freedoms = shared.variances, shared.freedoms
    assert variances[-1] == pytest.approx(0.02**2, rel=0.3)  # of the one that was measured once
    assert freedoms[-1] > 20
    spreads = [0.001 * 3**exponent for exponent in range(6)]
    unlike = [chance.normal(0, spread, 3) for spread in spreads for _ in range(5)]
    shared = moderated_variances(unlike)
    variances, freedoms = shared.variances, shared.freedoms
    assert max(variances) > 100 * min(variances)
    assert freedoms.max() < 5


def test_nothing_is_known_of_a_variance_before_there_are_repeats():
    variances = moderated_variances([np.array([0.1]), np.array([0.2]), np.array([0.1, 0.2])]).variances
    assert variances[:2].tolist() == [math.inf, math.inf]
    assert variances[2] == pytest.approx(0.005)


def test_a_difference_has_at_most_the_freedom_of_all_repeats():
    """The variances of both means come from the same four repeats: their freedoms do not add up."""
    chance = np.random.default_rng(0)
    _, freedoms = moderated_variances([chance.normal(0, 0.02, 2) for _ in range(4)]).of_differences()
    assert freedoms.max() == 4


def test_a_difference_of_two_samples_has_welchs_freedom():
    even, wide = np.array([0.0, 0.1, 0.2]), np.array([1.0, 1.1, 1.2])
    variances, freedoms = moderated_variances([even, wide]).of_differences()
    assert variances[0, 1] == pytest.approx(2 * 0.01 / 3)
    assert freedoms[0, 1] == pytest.approx(4)
