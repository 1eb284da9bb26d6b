"""Rows and a baseline in, changes out."""

from dataclasses import replace

import pytest

from tests.sweeps import EAGER, repeats, small_row
from trainkit.analysis.regressions import find_changes


def test_against_a_baseline_a_slower_and_a_larger_candidate_are_found():
    steps, hungry = (10.0, 10.02, 9.98), {"peak_allocated_bytes": 103}
    baseline = [*repeats("eager", *steps, peak_allocated_bytes=100), *repeats("default", 5.0, 5.01, 4.99)]
    baseline += repeats("max-autotune", 4.0, 4.01, 3.99)
    now = [*repeats("eager", *steps, **hungry), *repeats("default", 5.5, 5.51, 5.49, torch_version="2.13.0")]
    now += [small_row("max-autotune", None, status="oom", error="out of memory"), *repeats("reduce-overhead", 3.0, 3.0)]
    changes = find_changes(now, baseline)
    found = {change.label: (change.slower, change.uses_more_memory) for change in changes.changes}
    assert found == {"eager": (False, True), "default": (True, False)}
    assert (changes.failed, changes.missing) == (("max-autotune: oom: out of memory",), ())
    assert changes.added == ("reduce-overhead",)
    assert {change.label: change.step_time.value for change in changes.changes}["default"] == pytest.approx(1.1)


def test_against_itself_nothing_has_changed():
    rows = [*EAGER, *repeats("default", 5.0, 5.01, 4.99)]
    changes = find_changes(rows, rows)
    assert len(changes.changes) == 2
    assert not any(change.slower or change.uses_more_memory for change in changes.changes)
    assert all(change.step_time.measurable is False for change in changes.changes)


def test_against_one_run_nothing_is_known_to_be_slower():
    (change,) = find_changes([small_row(step_ms=20.0)], [small_row(step_ms=10.0)]).changes
    assert (change.step_time.measurable, change.slower) == (None, False)


def test_against_another_machine_nothing_is_compared():
    changes = find_changes([small_row(device_name="NVIDIA H200")], [small_row()])
    assert (changes.changes, changes.missing, changes.added) == (
        (),
        ("eager on 1 x NVIDIA H100",),
        ("eager on 1 x NVIDIA H200",),
    )


def test_against_rows_of_another_schema_version_nothing_is_compared_but_failures():
    baseline = [*EAGER, *repeats("default", 5.0, 5.01, 4.99), *repeats("max-autotune", 4.0, 4.01)]
    baseline = [replace(row, schema_version=2) for row in baseline]
    now = [*EAGER, *repeats("default", 7.0, 7.01), small_row("max-autotune", None, status="oom", error="no memory")]
    changes = find_changes(now, baseline)
    assert (changes.changes, changes.missing, changes.added) == ((), (), ())
    assert changes.failed == ("max-autotune: oom: no memory",)
    counts = {rest.label: (len(rest.rows), len(rest.baseline)) for rest in changes.incomparable}
    assert counts == {"eager": (3, 3), "default": (2, 3)}
    assert changes.schema_versions == (2, 3)


def test_against_rows_of_two_schema_versions_each_is_compared_with_its_own():
    old = [replace(row, schema_version=2) for row in repeats("eager", 20.0, 20.02, 19.98)]
    (change,) = find_changes(EAGER, [*old, *EAGER]).changes
    assert (change.label, change.step_time.value) == ("eager", pytest.approx(1.0))
    (rest,) = find_changes(EAGER, [*old, *EAGER]).incomparable
    assert (rest.rows, rest.baseline) == ((), tuple(old))
    changes = find_changes([*old, *EAGER], [*old, *EAGER])
    assert [change.label for change in changes.changes] == ["eager, schema version 2", "eager, schema version 3"]
    assert [change.step_time.value for change in changes.changes] == pytest.approx([1.0, 1.0])
    assert changes.incomparable == ()


def test_a_setting_that_was_measured_on_one_of_two_machines_again_is_compared_with_that_one():
    baseline = repeats("eager", 20.0, 20.02, 19.98, machine_id="slow")
    baseline += repeats("eager", 10.0, 10.01, machine_id="fast")
    (change,) = find_changes(repeats("eager", 20.0, 20.01, 19.99, machine_id="slow"), baseline).changes
    assert (change.step_time.value, change.slower) == (pytest.approx(1.0, abs=0.01), False)
