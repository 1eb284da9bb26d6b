"""Ratios within machines."""

import pytest

from tests.sweeps import candidates_of, repeats
from trainkit.analysis.comparison import compare
from trainkit.analysis.machines import step_ratio


def test_a_ratio_is_of_runs_on_the_machines_that_both_settings_were_measured_on():
    slow, fast = repeats("eager", 20.0, 20.2, machine_id="slow"), repeats("eager", 10.0, 10.1, machine_id="fast")
    compiled = repeats("default", 8.0, 8.1, machine_id="fast")
    assert step_ratio(slow + fast, compiled).value == pytest.approx(1.25, rel=1e-2)
    assert step_ratio(slow, compiled).value == pytest.approx(2.5, rel=1e-2)  # there is no other way


def test_rows_that_do_not_tell_their_machine_are_of_one():
    unknown, known = repeats("eager", 20.0, 20.2), repeats("eager", 10.0, 10.1, machine_id="known")
    assert step_ratio(unknown + known, repeats("default", 10.0, 10.1)).value == pytest.approx(2, rel=1e-2)


def test_what_repeats_cannot_show_is_of_the_same_machines_too():
    slow, fast = repeats("eager", 20.0, 20.2, machine_id="slow"), repeats("eager", 10.0, 10.1, machine_id="fast")
    compiled = repeats("default", 10.0, 10.1, machine_id="fast")
    doubt = candidates_of(compare(slow + fast + compiled))["default"].doubt
    assert doubt.varies == pytest.approx(1.01)  # not 2, which is the machines'
