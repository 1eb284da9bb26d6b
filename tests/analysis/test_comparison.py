"""Rows in, comparison out: what is a repeat, what is a setting, what serves as baseline, what is dropped and why."""

from dataclasses import replace

import pytest

from trainkit.analysis.candidates import Candidate, Spread
from trainkit.analysis.comparison import Comparison, compare
from trainkit.analysis.dropping import why_dropped
from trainkit.analysis.regressions import find_changes
from trainkit.report.verdicts import recommendation, verdict
from trainkit.results.row import Row

ROW = Row(
    run_id="sweep/0",
    status="ok",
    model="resnet18",
    data="synthetic",
    batch_size=64,
    compile_mode="eager",
    compile_backend="inductor",
    compile_scope="step",
    compile_cache="warm",
    precision="32-true",
    strategy="single",
    effective_mode="eager",
    num_steps=100,
    step_time_ms_p50=10.0,
    device_name="NVIDIA H100",
    num_devices=1,
    torch_version="2.11.0",
)


def row(mode: str = "eager", step_ms: float | None = 10.0, **fields) -> Row:
    return replace(ROW, **{"compile_mode": mode, "effective_mode": mode, "step_time_ms_p50": step_ms, **fields})


def settings(comparison: Comparison) -> dict[str, Candidate]:
    """The settings of the only group, by label, in their order."""
    (group,) = comparison.groups
    return {setting.label: setting for setting in group.candidates}


def test_repeats_become_a_median_with_its_spread():
    rows = [row("default", ms, repeat=n, seed=n) for n, ms in enumerate((9.0, 5.0, 6.0))]
    (setting,) = settings(compare(rows)).values()
    assert setting.num_repeats == 3
    assert setting.step_time_ms == Spread(6.0, 5.0, 9.0)


def test_every_cost_is_a_median_and_memory_the_highest_peak():
    costs = [
        {"compile_time_s": n, "epoch_train_time_s": 10 * n, "samples_per_s": 100 * n, "val_accuracy": n / 10}
        | {"peak_allocated_bytes": n, "peak_reserved_bytes": 10 * n, "peak_device_bytes": 100 * n}
        for n in (1, 4, 2)
    ]
    (setting,) = settings(compare(row(**cost) for cost in costs)).values()
    assert setting.compile_time_s == Spread(2, 1, 4)
    assert setting.epoch_train_time_s == Spread(20, 10, 40)
    assert setting.samples_per_s == Spread(200, 100, 400)
    assert setting.val_accuracy == Spread(0.2, 0.1, 0.4)
    peaks = (setting.peak_allocated_bytes, setting.peak_reserved_bytes, setting.peak_device_bytes)
    assert peaks == (4, 40, 400)


def test_what_no_repeat_measured_is_none_and_what_one_measured_is_kept():
    (setting,) = settings(compare([row(), row(val_accuracy=0.5)])).values()
    assert setting.val_accuracy == Spread(0.5, 0.5, 0.5)
    assert setting.compile_time_s is None
    assert setting.peak_allocated_bytes is None


def test_speedup_is_the_ratio_of_medians_inside_of_its_interval():
    rows = [row(step_ms=ms) for ms in (10.0, 12.0, 11.0)] + [row("default", ms) for ms in (5.0, 5.5, 6.0)]
    compared = settings(compare(rows))
    speedup = compared["default"].speedup
    assert speedup.value == pytest.approx(2.0)
    assert 1.0 < speedup.low < 2.0 < speedup.high
    assert speedup.measurable
    assert compared["eager"].speedup.value == 1.0


def test_the_fastest_setting_comes_first():
    rows = [row(step_ms=10.0), row("max-autotune", 4.0), row("default", 6.0)]
    assert list(settings(compare(rows))) == ["max-autotune", "default", "eager"]


def test_without_an_eager_row_there_is_no_speedup():
    assert settings(compare([row("default", 5.0)]))["default"].speedup is None


def test_an_eager_row_serves_whatever_its_compile_settings_are():
    """And eager rows that differ only in those are repeats of one setting."""
    eager = [row(step_ms=10.0, compile_dynamic=dynamic, compile_scope="net") for dynamic in (None, True)]
    compiled = [row("default", 5.0, compile_dynamic=True), row("default", 4.0, compile_dynamic=None)]
    compared = settings(compare(eager + compiled))
    assert list(compared) == ["default, dynamic=null", "default, dynamic=true", "eager"]
    assert [compared[label].num_repeats for label in compared] == [1, 1, 2]
    assert compared["default, dynamic=true"].speedup.value == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("field", "value", "label"),
    [
        ("compile_dynamic", True, "default, dynamic=true"),
        ("compile_fullgraph", True, "default, fullgraph=true"),
        ("compile_backend", "aot_eager", "default, backend=aot_eager"),
        ("compile_scope", "net", "default, scope=net"),
        ("compile_cache", "cold", "default, cache=cold"),
        ("precision", "bf16-mixed", "default, bf16-mixed"),
        ("strategy", "ddp", "default, ddp.strategy=ddp"),
        ("overrides", ["optimizer.lr=0.1"], "default, optimizer.lr=0.1"),
        ("matmul_precision", "high", "default, amp.matmul_precision=high"),
        ("overrides", ["data.num_workers=4"], "default, data.num_workers=4"),
    ],
)
def test_a_setting_that_differs_is_said_in_the_label(field, value, label):
    compared = settings(compare([row("default", 5.0), row("default", 4.0, **{field: value})]))
    assert len(compared) == 2
    assert next(iter(compared)) == label


@pytest.mark.parametrize("other", [{"precision": "bf16-mixed"}, {"overrides": ["optimizer.lr=0.1"]}])
def test_eager_with_another_setting_is_no_baseline(other):
    assert settings(compare([row(**other), row("default", 5.0)]))[_label_of_default(other)].speedup is None


def _label_of_default(other: dict) -> str:
    return "default, 32-true" if "precision" in other else "default"


def test_every_precision_has_its_own_baseline():
    rows = [row(step_ms=10.0), row("default", 5.0)]
    half = [replace(r, precision="bf16-mixed", step_time_ms_p50=r.step_time_ms_p50 - 4) for r in rows]
    compared = settings(compare(rows + half))
    assert compared["default, 32-true"].speedup.value == pytest.approx(2.0)
    assert compared["default, bf16-mixed"].speedup.value == pytest.approx(6.0)


def test_amp_says_no_more_than_the_precisions_do():
    half = {"precision": "bf16-mixed", "matmul_precision": "high"}  # conf/amp/bf16.yaml
    rows = [row(overrides=["amp=off"], matmul_precision="highest"), row(overrides=["amp=bf16"], step_ms=5.0, **half)]
    assert list(settings(compare(rows))) == ["eager, bf16-mixed", "eager, 32-true"]
    asked = row("default", overrides=["amp.precision=bf16-mixed"], step_ms=4.0, **half)
    assert settings(compare([*rows, asked]))["default, bf16-mixed"].speedup.value == pytest.approx(5 / 4)
    typed = row(overrides=["amp.matmul_precision=high"], matmul_precision="high", step_ms=8.0)
    assert list(settings(compare([*rows, typed]))) == [
        "eager, bf16-mixed, amp.matmul_precision=high", "eager, 32-true, amp.matmul_precision=high",
        "eager, 32-true, amp.matmul_precision=highest",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        {"model": "simple_cnn"},
        {"data": "digits"},
        {"batch_size": 32},
        {"world_size": 2},
        {"overrides": ["model.width=32"]},
        {"overrides": ["data.image_size=16"]},
        {"overrides": ["trainer.accumulate_grad_batches=4"]},  # a step of more batches
        {"device_name": "NVIDIA A100"},
        {"num_devices": 2},
        {"torch_version": "2.12.0"},
        {"python_version": "3.13.0"},
    ],
)
def test_other_work_or_another_machine_is_another_group(other):
    comparison = compare([row(), row("default", 5.0), row("default", 2.0, **other)])
    labels = [[setting.label for setting in group.candidates] for group in comparison.groups]
    assert labels == [["default", "eager"], ["default"]]
    assert comparison.groups[1].candidates[0].speedup is None


def test_what_saves_time_or_memory_is_a_setting_however_it_was_typed():
    asked = {
        "": [],
        ", optimizer.fused=false": ["optimizer.fused=False"],
        ", optimizer.foreach=true": ["optimizer.foreach=true"],
        ", trainer.channels_last=true": ["trainer.channels_last=true"],
        ", trainer.activation_checkpointing=true": ["trainer.activation_checkpointing=True"],
    }
    rows = [row(step_ms=ms, overrides=overrides) for ms, overrides in enumerate(asked.values(), start=1)]
    again = [replace(of, overrides=[name.replace("T", "t").replace("F", "f") for name in of.overrides]) for of in rows]
    compared = settings(compare(rows + again))
    assert list(compared) == [f"eager{label}" for label in asked]
    assert {setting.num_repeats for setting in compared.values()} == {2}


def test_each_model_is_compared_with_its_own_eager():
    rows = [
        row(model=model, mode=mode, step_ms=ms)
        for model, eager_ms, default_ms in (("a", 10.0, 5.0), ("b", 9.0, 3.0))
        for mode, ms in (("eager", eager_ms), ("default", default_ms))
    ]
    groups = {group.model: group.candidates[0] for group in compare(rows).groups}
    speedups = {model: setting.speedup.value for model, setting in groups.items()}
    assert speedups == pytest.approx({"a": 2.0, "b": 3.0})
    assert groups["a"].label == "default"


def test_a_group_says_what_all_its_rows_were_asked_alike():
    shared = ["model=resnet18", "amp=bf16", "trainer.max_epochs=2", "seed=3"]
    rows = [row(mode, overrides=[*shared, f"compile.mode={mode}"], batch_size=32) for mode in ("eager", "default")]
    (group,) = compare(rows).groups
    assert (group.model, group.data, group.batch_size, group.world_size) == ("resnet18", "synthetic", 32, 1)
    assert (group.precision, group.overrides) == ("32-true", ("trainer.max_epochs=2", "seed=3"))
    assert group.machine["device_name"] == "NVIDIA H100"
    (mixed,) = compare([row(), row(precision="bf16-mixed")]).groups
    assert mixed.precision is None


def test_what_changes_no_step_makes_no_setting():
    rows = [
        row(overrides=["seed=1", "compile.on_error=eager", "sweep=a"], seed=1, sweep_id="a"),
        row(overrides=["trainer.devices=1", "compile.mode=eager"], accelerator="gpu"),
    ]
    assert [setting.num_repeats for setting in settings(compare(rows)).values()] == [2]


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
        ({"step_time_ms_p50": None}, "no steady step among its 100: train for more steps"),
    ],
)
def test_a_row_that_would_mislead_is_dropped_with_its_reason(fields, reason):
    bad = replace(row("reduce-overhead", 5.0), **fields)
    comparison = compare([row(), bad])
    assert list(settings(comparison)) == ["eager"]
    (dropped,) = comparison.dropped
    assert (dropped.label, dropped.reason, dropped.rows) == ("reduce-overhead", reason, (bad,))


def test_an_unknown_effective_mode_drops_nothing():
    assert why_dropped(row("default", effective_mode=None)) is None


def test_a_dropped_repeat_leaves_the_others_of_its_setting():
    rows = [row("default", 5.0), row("default", 1.0, status="failed"), row("default", 7.0)]
    assert settings(compare(rows))["default"].step_time_ms == Spread(6.0, 5.0, 7.0)


def test_repeats_dropped_for_the_same_reason_stand_together():
    rows = [row("max-autotune", None, status="timeout", error=why, repeat=n) for n, why in enumerate(("a", "a", "b"))]
    comparison = compare(rows)
    assert [(drop.reason, len(drop.rows)) for drop in comparison.dropped] == [("timeout: a", 2), ("timeout: b", 1)]
    assert comparison.groups == ()


def test_the_label_of_a_job_that_never_started_says_what_it_was_asked():
    """Its row has defaults where only a started run knows better: they are no difference."""
    killed = replace(
        row("default", None, model="simple_cnn", status="failed", error="killed by SIGKILL"),
        **{"strategy": "auto", "world_size": 1, "device_name": None, "num_devices": None, "torch_version": None},
    )
    comparison = compare([row(world_size=2, strategy="ddp"), killed])
    assert [drop.label for drop in comparison.dropped] == ["simple_cnn, default"]


def test_every_row_is_in_exactly_one_place():
    rows = [row(mode, repeat=n) for n in range(3) for mode in ("eager", "default")]
    rows += [row("default", None), row(model="other"), row(status="oom"), row("max-autotune", effective_mode="mixed")]
    rows = [replace(r, run_id=str(n)) for n, r in enumerate(rows)]
    comparison = compare(rows)
    parts = [setting.rows for group in comparison.groups for setting in group.candidates]
    parts += [drop.rows for drop in comparison.dropped]
    assert sorted(r.run_id for part in parts for r in part) == sorted(r.run_id for r in rows)


def test_no_rows_give_an_empty_comparison():
    assert compare([]) == Comparison(groups=(), dropped=())


def repeated(mode: str, *steps_ms: float, **fields) -> list[Row]:
    return [row(mode, step_ms, repeat=n, **fields) for n, step_ms in enumerate(steps_ms)]


EAGER = repeated("eager", 10.0, 10.02, 9.98, compile_time_s=0.0, num_steps=1000, num_epochs=10)


def test_compiling_pays_from_where_the_seconds_saved_are_those_of_compiling():
    compared = settings(compare([*EAGER, *repeated("default", 6.0, 6.01, 5.99, compile_time_s=40.0, num_epochs=1)]))
    # 40 s / 4 ms a step; 100 steps an epoch; 40 s + 10,000 steps of 6 ms
    pays = compared["default"].break_even
    assert pays.num_steps == pytest.approx(10_000, abs=1)
    assert (pays.num_epochs, pays.minutes) == (pytest.approx(100, abs=0.1), pytest.approx(100 / 60, rel=1e-3))
    assert compared["eager"].break_even is None


@pytest.mark.parametrize("steps_ms", [(12.0, 12.1, 11.9), (10.0, 10.01, 9.99), (5.0,)])
def test_what_is_not_measurably_faster_never_pays(steps_ms):
    compared = settings(compare([*EAGER, *repeated("default", *steps_ms, compile_time_s=40.0)]))
    assert compared["default"].break_even is None


@pytest.mark.parametrize(("planned", "advised"), [(None, "default"), (9_000, "eager"), (11_000, "default")])
def test_what_is_advised_depends_on_the_steps_planned(planned, advised):
    slower = repeated("max-autotune", 12.0, 12.1, 11.9, compile_time_s=1.0)
    (group,) = compare([*EAGER, *repeated("default", 6.0, 6.01, 5.99, compile_time_s=40.0), *slower], planned).groups
    assert (group.candidates[0].label, group.recommended.label) == ("default", advised)
    if planned is not None:
        assert group.recommended.total_time_s == pytest.approx(min(planned * 0.01, 40 + planned * 0.006), rel=1e-3)


def test_of_settings_that_are_alike_the_one_that_compiles_soonest_is_advised():
    slow = repeated("max-autotune", 5.99, 6.0, 6.01, compile_time_s=300.0)
    rows = [*EAGER, *repeated("default", 6.0, 6.01, 5.99, compile_time_s=40.0), *slow]
    (group,) = compare(rows).groups
    assert group.recommended.label == "default"
    (group,) = compare(
        [*rows, *repeated("max-autotune-no-cudagraphs", 5.95, 5.951, 5.949, compile_time_s=300.0)]
    ).groups
    assert (group.candidates[0].label, group.recommended.label) == ("max-autotune-no-cudagraphs", "default")
    assert recommendation(group).endswith("max-autotune-no-cudagraphs is 0.8 % faster, and compiles longer.")
    (group,) = compare([*rows, *repeated("reduce-overhead", 4.0, 4.01, 3.99, compile_time_s=400.0)]).groups
    assert group.recommended.label == "reduce-overhead"


def advised(*rows: Row, planned: int | None = None) -> tuple[str | None, str]:
    (group,) = compare(rows, planned).groups
    return group.recommended and group.recommended.label, recommendation(group)


def test_a_gain_of_less_than_2_percent_is_worth_no_compile_until_the_planned_steps_say_so():
    rows = [*EAGER, *repeated("default", 9.9, 9.905, 9.895, compile_time_s=20.0)]
    assert advised(*rows) == (
        "eager",
        "Stay with eager: the fastest, default, is 1.0 % faster, of which 0.4 % is sure.",
    )
    label, words = advised(*rows, planned=10_000_000)
    assert label == "default"
    assert words.startswith("Train with default for a run of 10,000,000 steps")


def test_one_lucky_repeat_makes_no_setting_the_best():
    default = repeated("default", 8.0, 8.01, 7.99, compile_time_s=20.0)
    lucky = repeated("max-autotune", 7.5, 7.995, 8.4, compile_time_s=300.0)
    assert advised(*EAGER, *default, *lucky)[0] == "default"
    once = row("reduce-overhead", 5.0, compile_time_s=5.0)
    assert "reduce-overhead" not in advised(*EAGER, *default, once)[1]  # one run: nothing is known of it


def test_what_only_a_warm_cache_was_seen_of_wins_against_no_cold_compile():
    default = repeated("default", 8.0, 8.01, 7.99, compile_time_s=60.0, cache_found="cold")
    warmed = repeated("max-autotune", 8.0, 8.01, 7.99, compile_time_s=10.0, cache_found="warm")
    assert advised(*EAGER, *default, *warmed)[0] == "default"
    assert advised(*EAGER, *default, *warmed, planned=6_000)[0] == "eager"
    label, words = advised(*EAGER, *warmed, planned=6_000)
    assert (label, "in all with a warm cache" in words) == ("max-autotune", True)
    unknown = repeated("reduce-overhead", 8.0, 8.01, 7.99)
    assert advised(*EAGER, *default, *unknown)[0] == "default"


def test_with_several_baselines_the_words_name_the_one_and_only_what_beats_all_pays_first():
    bf16 = {"precision": "bf16-mixed", "overrides": ["amp=bf16"]}
    eager = repeated("eager", 5.0, 5.01, 4.99, **bf16)
    default = repeated("default", 8.0, 8.01, 7.99, compile_time_s=2.0)
    faster = repeated("default", 4.0, 4.01, 3.99, compile_time_s=20.0, **bf16)
    label, words = advised(*EAGER, *eager, *default, *faster)
    assert label == "default, bf16-mixed"
    assert "over eager, bf16-mixed" in words
    assert "pays off first" not in words


def test_what_pays_first_is_counted_over_the_eager_setting_that_a_short_run_does_best_with():
    bf16 = {"precision": "bf16-mixed", "overrides": ["amp=bf16"]}
    eager = repeated("eager", 5.0, 5.01, 4.99, **bf16)
    faster = repeated("default", 4.0, 4.01, 3.99, compile_time_s=20.0, **bf16)
    default = repeated("default", 4.5, 4.51, 4.49, compile_time_s=2.0)
    label, words = advised(*EAGER, *eager, *default, *faster)
    assert label == "default, bf16-mixed"
    assert "; it pays off after 20,000 steps " in words
    assert "For shorter runs: default, 32-true pays off first over eager, bf16-mixed, after 4,000 steps " in words
    late = repeated("default", 4.9, 4.91, 4.89, compile_time_s=2.1)  # over its own eager it would pay the soonest
    assert "pays off first" not in advised(*EAGER, *eager, *late, *faster)[1]


def test_a_failed_check_of_one_repeat_takes_all_its_setting_out():
    default = repeated("default", 8.0, 8.01, 7.99, compile_time_s=20.0)
    default[0] = replace(default[0], check_passed=False, check_reason="gradients")
    comparison = compare([*EAGER, *default])
    assert list(settings(comparison)) == ["eager"]
    assert sorted(len(drop.rows) for drop in comparison.dropped) == [1, 2]
    failed = [row("reduce-overhead", None, status="oom", error="out of memory", repeat=n) for n in (3, 4)]
    kept = repeated("reduce-overhead", 8.0, 8.01, 7.99, compile_time_s=20.0)
    (group,) = compare([*EAGER, *kept, *failed]).groups
    assert verdict(group.candidates[0], group).endswith("; 2 of 5 runs failed")


def test_without_an_eager_run_of_the_same_settings_more_repeats_are_not_asked_for():
    other = repeated("default", 8.0, 8.01, 7.99, overrides=["trainer.max_epochs=3"])
    assert advised(*EAGER, *other) == (None, "No advice: no eager run has the settings of the others.")
    same = repeated("default", 8.0, 8.01, 7.99, overrides=["logger.project=mine"], compile_time_s=1.0)
    assert advised(*EAGER, *same)[0] == "default"


@pytest.mark.parametrize("step_ms", [0.0, -1.0])
def test_a_step_time_that_cannot_be_is_dropped(step_ms):
    (drop,) = compare([row("default", step_ms)]).dropped
    assert drop.reason == f"a step time of {step_ms} ms is impossible"


def test_compile_costs_are_of_the_coldest_cache_and_the_warm_ones_stand_beside():
    caches = [("cold", 40.0), ("warm", 2.0), ("warm", 2.2), ("mixed", 9.0)]
    rows = [
        row("default", 6.0 + 0.01 * n, repeat=n, cache_found=found, compile_time_s=cost, compile_forward_s=cost)
        for n, (found, cost) in enumerate(caches)
    ]
    default = settings(compare([*EAGER, *rows]))["default"]
    assert (default.compile_time_s.median, default.compile_parts_s) == (40.0, {"compile_forward_s": 40.0})
    assert default.warm_compile_time_s.median == pytest.approx(2.1)
    assert default.break_even.num_steps == pytest.approx(20 * default.break_even.num_warm_steps, rel=0.06)
    (mixed,) = settings(compare([rows[3]])).values()
    assert (mixed.compile_time_s.median, mixed.warm_compile_time_s) == (9.0, None)


def test_what_was_seen_with_a_warmer_cache_than_another_setting_is_not_advised_for_compiling_sooner():
    def found(mode: str, caches: str, cost: float) -> list[Row]:
        of = repeated(mode, 5.0, 5.01, compile_time_s=cost)
        return [replace(one, cache_found=cache) for one, cache in zip(of, caches.split(), strict=True)]

    mixed, warm = found("default", "mixed warm", 20.0), found("reduce-overhead", "warm warm", 2.0)
    (group,) = compare([*EAGER, *mixed, *warm]).groups
    assert group.recommended.label == "default"
    (group,) = compare([*EAGER, *(replace(one, cache_found="warm") for one in mixed), *warm]).groups
    assert group.recommended.label == "reduce-overhead"


def test_another_deadline_is_other_work_and_a_chain_is_a_setting():
    rows = [
        row(kind="forward", deadline_ms=deadline_ms, fallback=fallback)
        for deadline_ms in (2.0, 10.0)
        for fallback in (None, ["model=simple_net"])
    ]
    assert [len(group.candidates) for group in compare(rows).groups] == [2, 2]


def test_one_repeat_leaves_it_unknown_and_advises_nothing():
    (group,) = compare([row(), row("default", 5.0)]).groups
    assert (group.candidates[0].speedup.measurable, group.recommended) == (None, None)
    assert group.candidates[0].speedup.noise_floor is None


def test_eager_is_advised_where_nothing_is_measurably_faster():
    (group,) = compare([*EAGER, *repeated("default", 10.0, 10.01, 9.99, compile_time_s=40.0)]).groups
    assert group.recommended.label == "eager"


def test_a_mode_with_wrong_numbers_takes_no_part():
    wrong = row("default", 5.0, check_passed=False, check_reason="gradients differ from float64 by 0.3")
    assert why_dropped(wrong) == "numbers differ from eager: gradients differ from float64 by 0.3"
    assert why_dropped(row("default", 5.0, check_passed=None)) is None


@pytest.mark.parametrize(
    ("accuracies", "targets", "within"),
    [
        ((0.95, 0.95), 100, True),  # 3 % of sampling error
        ((0.90, 0.90), 10_000, False),
        ((0.949, 0.951), None, True),  # repeats differ as much
        ((0.93, 0.93), None, False),
        ((None, None), 100, None),
        ((91.0, 91.0), 100, False),  # not a share: said, not raised
    ],
)
def test_accuracy_is_held_against_repeats_and_the_size_of_the_validation_set(accuracies, targets, within):
    rows = [row(val_accuracy=a, num_val_targets=targets) for a in (0.950, 0.952)]
    rows += [row("default", 5.0, val_accuracy=a, num_val_targets=targets) for a in accuracies]
    assert settings(compare(rows))["default"].accuracy_matches is within


def test_one_target_more_or_less_is_chance_where_all_are_right():
    rows = [*repeated("eager", 1.0, 1.0, val_accuracy=1.0, num_val_targets=360)]
    rows += repeated("default", 0.5, 0.5, val_accuracy=359 / 360, num_val_targets=360)
    assert settings(compare(rows))["default"].accuracy_matches is True


def test_compile_parts_are_medians_of_what_is_known():
    rows = repeated("default", 5.0, 5.0, compile_startup_s=4.0, compile_forward_s=1.0)
    assert settings(compare(rows))["default"].compile_parts_s == {"compile_startup_s": 4.0, "compile_forward_s": 1.0}


def test_against_a_baseline_a_slower_and_a_larger_candidate_are_found():
    steps, hungry = (10.0, 10.02, 9.98), {"peak_allocated_bytes": 103}
    baseline = [*repeated("eager", *steps, peak_allocated_bytes=100), *repeated("default", 5.0, 5.01, 4.99)]
    baseline += repeated("max-autotune", 4.0, 4.01, 3.99)
    now = [*repeated("eager", *steps, **hungry), *repeated("default", 5.5, 5.51, 5.49, torch_version="2.13.0")]
    now += [row("max-autotune", None, status="oom", error="out of memory"), *repeated("reduce-overhead", 3.0, 3.0)]
    changes = find_changes(now, baseline)
    found = {change.label: (change.slower, change.uses_more_memory) for change in changes.changes}
    assert found == {"eager": (False, True), "default": (True, False)}
    assert (changes.failed, changes.missing) == (("max-autotune: oom: out of memory",), ())
    assert changes.added == ("reduce-overhead",)
    assert {change.label: change.step_time.value for change in changes.changes}["default"] == pytest.approx(1.1)


def test_against_itself_nothing_has_changed():
    rows = [*EAGER, *repeated("default", 5.0, 5.01, 4.99)]
    changes = find_changes(rows, rows)
    assert len(changes.changes) == 2
    assert not any(change.slower or change.uses_more_memory for change in changes.changes)
    assert all(change.step_time.measurable is False for change in changes.changes)


def test_against_one_run_nothing_is_known_to_be_slower():
    (change,) = find_changes([row(step_ms=20.0)], [row(step_ms=10.0)]).changes
    assert (change.step_time.measurable, change.slower) == (None, False)


def test_against_another_machine_nothing_is_compared():
    changes = find_changes([row(device_name="NVIDIA H200")], [row()])
    assert (changes.changes, changes.missing, changes.added) == (
        (),
        ("eager on 1 x NVIDIA H100",),
        ("eager on 1 x NVIDIA H200",),
    )
