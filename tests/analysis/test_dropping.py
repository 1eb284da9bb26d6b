"""Rows that would mislead are dropped with their reason."""

from dataclasses import replace

import pytest

from tests.sweeps import EAGER, candidates_of, repeats, small_row
from trainkit.analysis.candidates import Spread
from trainkit.analysis.comparison import compare
from trainkit.analysis.dropping import why_dropped
from trainkit.report.verdicts import verdict


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "timeout", "error": "stopped after 600 s"}, "timeout: stopped after 600 s"),
        ({"status": "oom", "error": "CUDA out of memory\nTraceback"}, "oom: CUDA out of memory"),
        (
            {"status": "oom", "error": "out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free. See"},
            "oom: out of memory. Tried to allocate 2.00 GiB.",
        ),
        ({"status": "nan", "error": "nan: the loss is nan"}, "nan: the loss is nan"),
        ({"status": "failed"}, "failed"),
        ({"effective_mode": "default"}, "requested reduce-overhead, effective default"),
        (
            {"effective_mode": "default", "effective_mode_reason": "no CUDA device"},
            "requested reduce-overhead, effective default: no CUDA device",
        ),
        ({"foreign_processes": 1}, "measured beside another process on the device (foreign_processes)"),
        (
            {"check_passed": True, "check_gradients_agree": False, "check_ranks_reason": "gradients of fc differ"},
            "the ranks differ: gradients of fc differ",
        ),
        (
            {"check_graphs_agree": False, "check_ranks_reason": "graphs: rank 0 1, rank 1 3"},
            "the ranks differ: graphs: rank 0 1, rank 1 3",
        ),
        ({"step_time_ms_p50": None}, "no steady step among its 100: train for more steps"),
    ],
)
def test_a_row_that_would_mislead_is_dropped_with_its_reason(fields, reason):
    bad = replace(small_row("reduce-overhead", 5.0), **fields)
    comparison = compare([small_row(), bad])
    assert list(candidates_of(comparison)) == ["eager"]
    (dropped,) = comparison.dropped
    assert (dropped.label, dropped.reason, dropped.rows) == ("reduce-overhead", reason, (bad,))


@pytest.mark.parametrize("fields", [{"effective_mode": None}, {"foreign_processes": None}, {"foreign_processes": 0}])
def test_an_unknown_effective_mode_or_number_of_processes_drops_nothing(fields):
    assert why_dropped(small_row("default", **fields)) is None


def test_a_dropped_repeat_leaves_the_others_of_its_setting():
    rows = [small_row("default", 5.0), small_row("default", 1.0, status="failed"), small_row("default", 7.0)]
    assert candidates_of(compare(rows))["default"].step_time_ms == Spread(6.0, 5.0, 7.0)


def test_repeats_dropped_for_the_same_reason_stand_together():
    rows = [small_row("max-autotune", None, status="timeout", error=error) for error in ("a", "a", "b")]
    comparison = compare(rows)
    assert [(drop.reason, len(drop.rows)) for drop in comparison.dropped] == [("timeout: a", 2), ("timeout: b", 1)]
    assert comparison.groups == ()


@pytest.mark.parametrize("step_ms", [0.0, -1.0])
def test_a_step_time_that_cannot_be_is_dropped(step_ms):
    (drop,) = compare([small_row("default", step_ms)]).dropped
    assert drop.reason == f"a step time of {step_ms} ms is impossible"


def test_a_mode_with_wrong_numbers_takes_no_part():
    wrong = small_row("default", 5.0, check_passed=False, check_reason="gradients differ from float64 by 0.3")
    assert why_dropped(wrong) == "numbers differ from eager: gradients differ from float64 by 0.3"
    assert why_dropped(small_row("default", 5.0, check_passed=None)) is None


def test_a_failed_check_of_one_repeat_takes_all_its_setting_out():
    default = repeats("default", 8.0, 8.01, 7.99, compile_time_s=20.0)
    default[0] = replace(default[0], check_passed=False, check_reason="gradients")
    comparison = compare([*EAGER, *default])
    assert list(candidates_of(comparison)) == ["eager"]
    assert sorted(len(drop.rows) for drop in comparison.dropped) == [1, 2]
    old = [replace(row, schema_version=2) for row in default]
    comparison = compare([*EAGER, *repeats("default", 8.0, 8.01, 7.99), *old])
    assert list(candidates_of(comparison)) == ["default", "eager"]
    assert sum(len(drop.rows) for drop in comparison.dropped) == 3
    failed = [small_row("reduce-overhead", None, status="oom", error="out of memory", repeat=n) for n in (3, 4)]
    kept = repeats("reduce-overhead", 8.0, 8.01, 7.99, compile_time_s=20.0)
    (group,) = compare([*EAGER, *kept, *failed]).groups
    assert verdict(group.candidates[0], group).endswith("; 2 of 5 runs failed")


def test_a_run_that_failed_before_it_knew_its_machine_counts_for_its_setting():
    unknown = {"device_name": None, "num_devices": None, "torch_version": None, "strategy": "auto"}
    early = small_row("default", None, status="failed", error="killed by SIGKILL", **unknown)
    default = repeats("default", 5.0, 5.01, 5.02)
    (group,) = compare([*EAGER, *default, early]).groups
    assert verdict(group.candidates[0], group).endswith("; 1 of 4 runs failed")
    assert group.candidates[1].num_failed == 0
    elsewhere = [replace(row, device_name="NVIDIA A100") for row in default]
    comparison = compare([*EAGER, *default, *elsewhere, early])  # it may be of either
    for group in comparison.groups:
        assert group.candidates[0].num_failed == 0
    assert [drop.label for drop in comparison.dropped] == ["default"]
    (drop,) = compare([*EAGER, early]).dropped
    assert (drop.label, drop.reason) == ("default", "failed: killed by SIGKILL")


def test_what_went_wrong_with_other_versions_speaks_against_no_row_of_these():
    rows = [*EAGER, *repeats("default", 5.0, 5.01, 5.02, check_passed=True)]
    older = small_row("default", 5.0, torch_version="2.10.0", check_passed=False, repeat=9)
    smaller = small_row("default", None, device_name="NVIDIA A100", status="oom", repeat=8)
    failed = small_row("default", None, status="oom", repeat=7)
    default = candidates_of(compare([*rows, older, smaller, failed]))["default"]
    assert (default.num_repeats, default.num_failed) == (3, 1)
