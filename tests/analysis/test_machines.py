"""Ratios within machines."""

import pytest

from tests.sweeps import candidates_of, repeats
from trainkit.analysis.comparison import compare
from trainkit.analysis.machines import machine_factors, step_ratio
from trainkit.analysis.pairs import compare_pairs
from trainkit.report.verdicts import verdict
from trainkit.results.row import Row


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


def uneven(eager_ms: float, compiled_ms: float) -> list[Row]:
    """Three runs of eager and one compiled on a machine, one and three on another, on which steps take half as long."""
    rows = repeats("eager", eager_ms, 1.01 * eager_ms, 0.99 * eager_ms, machine_id="slow")
    rows += repeats("default", compiled_ms, machine_id="slow")
    rows += repeats("eager", eager_ms / 2, machine_id="fast")
    return rows + repeats("default", compiled_ms / 2, 0.505 * compiled_ms, 0.495 * compiled_ms, machine_id="fast")


def test_machines_have_no_part_in_a_ratio_however_many_runs_of_each_there_are():
    default = candidates_of(compare(uneven(20.0, 20.0)))["default"]
    assert default.speedup.value == pytest.approx(1.0, rel=1e-2)  # of all runs together it would be 1.41
    assert default.speedup.measurable is False
    default = candidates_of(compare(uneven(20.0, 18.0)))["default"]
    assert default.speedup.value == pytest.approx(20 / 18, rel=1e-2)
    assert default.speedup.measurable is True
    (pair,) = compare_pairs(uneven(20.0, 18.0), "compile.mode=default", "compile.mode=eager")
    assert pair.ratio == default.speedup


def test_one_run_on_each_machine_is_a_repeat_of_the_difference():
    machines = {"a": 10.0, "b": 15.0, "c": 30.0}
    rows = []
    for number, (machine, step_ms) in enumerate(machines.items()):
        rows += repeats("eager", step_ms, machine_id=machine)
        rows += repeats("default", step_ms / (1.2 + 0.01 * number), machine_id=machine)
    speedup = candidates_of(compare(rows))["default"].speedup
    assert speedup.value == pytest.approx(1.21, rel=1e-3)
    assert 1.15 < speedup.low < 1.21 < speedup.high < 1.27
    assert speedup.measurable


def test_the_factors_of_machines_are_those_of_the_settings_that_they_share():
    slow = [repeats("eager", 20.0, 20.0, machine_id="slow"), repeats("default", 16.0, machine_id="slow")]
    fast = [repeats("eager", 10.0, machine_id="fast"), repeats("default", 8.0, 8.0, machine_id="fast")]
    factors = machine_factors([slow[0] + fast[0], slow[1] + fast[1]])
    assert factors["slow"] / factors["fast"] == pytest.approx(2)
    assert machine_factors([*slow, repeats("max-autotune", 1.0, machine_id="other")])["other"] == pytest.approx(1)
    assert machine_factors(slow) == {"slow": 1.0}


def test_settings_are_ranked_by_the_times_of_one_machine():
    rows = repeats("eager", 20.0, 20.2, 19.8, machine_id="slow") + repeats("eager", 10.0, 10.1, 9.9, machine_id="fast")
    rows += repeats("default", 14.0, 14.1, 13.9, machine_id="slow", compile_time_s=10.0)
    rows += repeats("max-autotune", 9.0, 9.1, 8.9, machine_id="fast", compile_time_s=90.0)
    for planned in (None, 100_000):
        (group,) = compare(rows, planned).groups
        assert [candidate.label for candidate in group.candidates] == ["default", "max-autotune", "eager"]
        assert group.recommended.label == "default"
    average_saved_s = (20.0 * 10.0) ** 0.5 * (1 - 14 / 20) / 1e3
    assert group.candidates[0].break_even.num_steps == pytest.approx(10 / average_saved_s, rel=0.01)
    assert group.candidates[0].step_time_ms.median == 14.0


def test_what_repeats_cannot_show_is_of_one_machine_where_both_have_several():
    doubt = candidates_of(compare(uneven(20.0, 20.0)))["default"].doubt
    assert doubt.varies < 1.03


def test_a_single_run_on_a_common_machine_is_said_to_be_one():
    rows = repeats("eager", 10.0, 10.1, machine_id="a") + repeats("eager", 10.0, machine_id="b")
    (group,) = compare([*rows, *repeats("default", 5.0, 5.1, machine_id="b")]).groups
    words = "default: unknown: 1 run of eager on a common machine (1.98x over eager)"
    assert verdict(group.candidates[0], group) == words
    rows += repeats("default", 5.0, machine_id="b") + repeats("default", 5.0, machine_id="c")
    (group,) = compare(rows).groups
    assert verdict(group.candidates[0], group).startswith("default: unknown: 1 run on a common machine (")
