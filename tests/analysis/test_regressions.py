"""Rows and a baseline in, changes out."""

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
