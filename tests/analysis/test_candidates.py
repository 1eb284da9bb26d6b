"""Repeats in, a candidate out: medians, memory, speed-up, break-even point."""

from dataclasses import replace

import pytest

from tests.sweeps import EAGER, candidates_of, repeats, small_row
from trainkit.analysis.candidates import Spread
from trainkit.analysis.comparison import compare
from trainkit.report.verdicts import verdict


def test_repeats_become_a_median_with_its_spread():
    rows = [small_row("default", ms, repeat=n, seed=n) for n, ms in enumerate((9.0, 5.0, 6.0))]
    (setting,) = candidates_of(compare(rows)).values()
    assert setting.num_repeats == 3
    assert setting.step_time_ms == Spread(6.0, 5.0, 9.0)


def test_every_cost_is_a_median_and_memory_the_highest_peak():
    costs = [
        {"compile_time_s": n, "epoch_train_time_s": 10 * n, "samples_per_s": 100 * n, "val_accuracy": n / 10}
        | {"peak_allocated_bytes": n, "peak_reserved_bytes": 10 * n, "peak_device_bytes": 100 * n}
        for n in (1, 4, 2)
    ]
    (setting,) = candidates_of(compare(small_row(**cost) for cost in costs)).values()
    assert setting.compile_time_s == Spread(2, 1, 4)
    assert setting.epoch_train_time_s == Spread(20, 10, 40)
    assert setting.samples_per_s == Spread(200, 100, 400)
    assert setting.metric.spread == Spread(0.2, 0.1, 0.4)
    peaks = (setting.peak_allocated_bytes, setting.peak_reserved_bytes, setting.peak_device_bytes)
    assert peaks == (4, 40, 400)


def test_what_no_repeat_measured_is_none_and_what_one_measured_is_kept():
    (setting,) = candidates_of(compare([small_row(), small_row(val_accuracy=0.5)])).values()
    assert setting.metric.spread == Spread(0.5, 0.5, 0.5)
    assert setting.compile_time_s is None
    assert setting.peak_allocated_bytes is None


def test_speedup_is_a_ratio_inside_of_its_interval():
    rows = [small_row(step_ms=ms) for ms in (10.0, 12.0, 11.0)] + [small_row("default", ms) for ms in (5.0, 5.5, 6.0)]
    compared = candidates_of(compare(rows))
    speedup = compared["default"].speedup
    assert speedup.value == pytest.approx(2.0)
    assert 1.0 < speedup.low < 2.0 < speedup.high
    assert speedup.measurable
    assert compared["eager"].speedup.value == 1.0


def test_without_an_eager_row_there_is_no_speedup():
    assert candidates_of(compare([small_row("default", 5.0)]))["default"].speedup is None


def test_an_eager_row_serves_whatever_its_compile_settings_are():
    """And eager rows that differ only in those are repeats of one setting."""
    eager = [small_row(step_ms=10.0, compile_dynamic=dynamic, compile_scope="net") for dynamic in (None, True)]
    compiled = [small_row("default", 5.0, compile_dynamic=True), small_row("default", 4.0, compile_dynamic=None)]
    compared = candidates_of(compare(eager + compiled))
    assert list(compared) == ["default, dynamic=null", "default, dynamic=true", "eager"]
    assert [compared[label].num_repeats for label in compared] == [1, 1, 2]
    assert compared["default, dynamic=true"].speedup.value == pytest.approx(2.0)


@pytest.mark.parametrize("other", [{"precision": "bf16-mixed"}, {"overrides": ["optimizer.lr=0.1"]}])
def test_eager_with_another_setting_is_no_baseline(other):
    candidates = candidates_of(compare([small_row(**other), small_row("default", 5.0)]))
    (default,) = [candidate for label, candidate in candidates.items() if label.startswith("default")]
    assert default.speedup is None


def test_every_precision_has_its_own_baseline():
    rows = [small_row(step_ms=10.0), small_row("default", 5.0)]
    half = [replace(r, precision="bf16-mixed", step_time_ms_p50=r.step_time_ms_p50 - 4) for r in rows]
    compared = candidates_of(compare(rows + half))
    assert compared["default, 32-true"].speedup.value == pytest.approx(2.0)
    assert compared["default, bf16-mixed"].speedup.value == pytest.approx(6.0)


def test_compiling_pays_from_where_the_seconds_saved_are_those_of_compiling():
    compared = candidates_of(compare([*EAGER, *repeats("default", 6.0, 6.01, 5.99, compile_time_s=40.0, num_epochs=1)]))
    # 40 s / 4 ms a step; 100 steps an epoch; 40 s + 10,000 steps of 6 ms
    pays = compared["default"].break_even
    assert pays.num_steps == pytest.approx(10_000, abs=1)
    assert (pays.num_epochs, pays.minutes) == (pytest.approx(100, abs=0.1), pytest.approx(100 / 60, rel=1e-3))
    assert compared["eager"].break_even is None


def test_an_exported_program_pays_from_where_its_export_is_saved_too():
    eager = repeats("eager", 10.0, 10.01, 9.99, kind="forward", compile_time_s=0.0)
    exported = {"kind": "forward", "engine": "export", "compile_time_s": 1.0, "export_time_s": 19.0}
    rows = [*eager, *repeats("eager", 8.0, 8.01, 7.99, **exported)]
    (group,) = compare(rows, 20_000).groups
    fastest = group.candidates[0]
    assert fastest.break_even.num_steps == pytest.approx(20 / 0.002, abs=2)
    assert fastest.total_time_s == pytest.approx(20 + 20_000 * 0.008)
    assert fastest.compile_time_s.median == 1.0
    assert "over engine=network, +20 s export and compile, pays off after " in verdict(fastest, group)
    (group,) = compare(rows, 9_000).groups
    assert group.recommended is group.candidates[1]


@pytest.mark.parametrize("steps_ms", [(12.0, 12.1, 11.9), (10.0, 10.01, 9.99), (5.0,)])
def test_what_is_not_measurably_faster_never_pays(steps_ms):
    compared = candidates_of(compare([*EAGER, *repeats("default", *steps_ms, compile_time_s=40.0)]))
    assert compared["default"].break_even is None


def test_compile_costs_are_of_the_coldest_cache_and_the_warm_ones_stand_beside():
    caches = [("cold", 40.0), ("warm", 2.0), ("warm", 2.2), ("mixed", 9.0)]
    rows = [
        small_row("default", 6.0 + 0.01 * n, repeat=n, cache_found=found, compile_time_s=cost, compile_forward_s=cost)
        for n, (found, cost) in enumerate(caches)
    ]
    default = candidates_of(compare([*EAGER, *rows]))["default"]
    assert (default.compile_time_s.median, default.compile_parts_s) == (40.0, {"compile_forward_s": 40.0})
    assert default.warm_compile_time_s.median == pytest.approx(2.1)
    assert default.break_even.num_steps == pytest.approx(20 * default.break_even.num_warm_steps, rel=0.06)
    (mixed,) = candidates_of(compare([rows[3]])).values()
    assert (mixed.compile_time_s.median, mixed.warm_compile_time_s) == (9.0, None)


def test_one_repeat_leaves_it_unknown_and_advises_nothing():
    (group,) = compare([small_row(), small_row("default", 5.0)]).groups
    assert (group.candidates[0].speedup.measurable, group.recommended) == (None, None)
    assert group.candidates[0].speedup.noise_floor is None


@pytest.mark.parametrize(
    ("accuracies", "targets", "within"),
    [
        ((0.95, 0.95), 100, True),  # 3 % of sampling error
        ((0.90, 0.90), 10_000, False),
        ((0.949, 0.951), None, True),  # repeats differ as much
        ((0.93, 0.93), None, False),
        ((None, None), 100, True),
        ((91.0, 91.0), 100, False),  # not a share: said, not raised
    ],
)
def test_accuracy_is_held_against_repeats_and_the_size_of_the_validation_set(accuracies, targets, within):
    rows = [small_row(val_accuracy=a, num_val_targets=targets) for a in (0.950, 0.952)]
    rows += [small_row("default", 5.0, val_accuracy=a, num_val_targets=targets) for a in accuracies]
    assert (candidates_of(compare(rows))["default"].eager_metric is None) is within


def test_one_target_more_or_less_is_chance_where_all_are_right():
    rows = [*repeats("eager", 1.0, 1.0, val_accuracy=1.0, num_val_targets=360)]
    rows += repeats("default", 0.5, 0.5, val_accuracy=359 / 360, num_val_targets=360)
    assert candidates_of(compare(rows))["default"].eager_metric is None


@pytest.mark.parametrize(
    ("values", "higher_is_better", "better"),
    [
        ((0.50, 0.51), True, None),  # the repeats differ as much
        ((-0.90, -0.91), True, False),
        ((-0.90, -0.91), False, True),
        ((0.9,), False, None),  # one repeat tells nothing
    ],
)
def test_another_metric_is_held_against_its_spread_over_repeats_and_judged_by_its_direction(
    values, higher_is_better, better
):
    metric = {"metric_name": "R2Score", "metric_higher_is_better": higher_is_better, "num_val_targets": 10}
    rows = [small_row(val_metric=value, **metric) for value in (0.50, 0.52)]
    rows += [small_row("default", 5.0, val_metric=value, **metric) for value in values]
    default = candidates_of(compare(rows))["default"]
    if better is None:
        assert default.eager_metric is None
    else:
        assert default.metric.is_better_than(default.eager_metric) is better


def test_repeats_that_all_come_to_the_same_do_not_tell_how_far_chance_goes():
    metric = {"metric_name": "R2Score", "metric_higher_is_better": True}
    rows = repeats("eager", 1.0, 1.0, val_metric=0.5, **metric) + repeats("default", 0.5, 0.5, val_metric=0.6, **metric)
    assert candidates_of(compare(rows))["default"].eager_metric is None


def test_compile_parts_are_medians_of_what_is_known():
    rows = repeats("default", 5.0, 5.0, compile_startup_s=4.0, compile_forward_s=1.0)
    default = candidates_of(compare(rows))["default"]
    assert default.compile_parts_s == {
        "compile_startup_s": 4.0,
        "compile_forward_s": 1.0,
    }


def test_a_setting_whose_eager_predicts_worse_than_another_eager_is_not_advised():
    accurate = {"val_accuracy": 0.93, "num_val_targets": 10_000}
    broken = {"val_accuracy": 0.10, "num_val_targets": 10_000, "precision": "bf16-true"}
    rows = [*repeats("eager", 10.0, 10.01, 10.02, **accurate), *repeats("default", 8.0, 8.01, 8.02, **accurate)]
    rows += [*repeats("eager", 6.0, 6.01, 6.02, **broken), *repeats("default", 5.0, 5.01, 5.02, **broken)]
    (group,) = compare(rows).groups
    assert group.recommended.label == "default, 32-true"
    worse = [candidate.label for candidate in group.candidates if candidate.has_worse_metric]
    assert worse == ["default, bf16-true", "eager, bf16-true"]


def test_a_side_with_repeats_tells_how_far_chance_goes_though_the_other_has_one_run():
    rows = [small_row(val_accuracy=0.93, num_val_targets=10_000)]
    rows += [small_row("default", 5.0, val_accuracy=a, num_val_targets=10_000) for a in (0.85, 0.90, 0.935)]
    assert candidates_of(compare(rows))["default"].eager_metric is None
