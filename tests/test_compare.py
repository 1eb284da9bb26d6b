"""Rows in, comparison out: what is a repeat, what is a setting, what serves as baseline, what is dropped and why."""

from dataclasses import replace

import pytest

from trainkit.compare import Comparison, Setting, Spread, compare, why_dropped
from trainkit.results import Row

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


def settings(comparison: Comparison) -> dict[str, Setting]:
    """The settings of the only group, by label, in their order."""
    (group,) = comparison.groups
    return {setting.label: setting for setting in group.settings}


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


def test_speedup_is_the_ratio_of_medians_and_its_range_the_extremes():
    rows = [row(step_ms=ms) for ms in (10.0, 12.0, 11.0)] + [row("default", ms) for ms in (5.0, 5.5, 6.0)]
    compared = settings(compare(rows))
    assert compared["default"].speedup == Spread(11.0 / 5.5, 10.0 / 6.0, 12.0 / 5.0)
    assert compared["eager"].speedup == Spread(1.0, 1.0, 1.0)


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
    assert compared["default, dynamic=true"].speedup.median == 2.0


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
        ("overrides", ["+amp=bf16"], "default, amp=bf16"),
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
    assert compared["default, 32-true"].speedup.median == 2.0
    assert compared["default, bf16-mixed"].speedup.median == 6.0


def test_amp_says_the_precision_once():
    rows = [row(overrides=["amp=off"]), row(overrides=["amp=bf16"], precision="bf16-mixed", step_ms=5.0)]
    assert list(settings(compare(rows))) == ["eager, amp=bf16", "eager, amp=off"]


@pytest.mark.parametrize(
    "other",
    [
        {"model": "simple_cnn"},
        {"data": "digits"},
        {"batch_size": 32},
        {"world_size": 2},
        {"overrides": ["model.width=32"]},
        {"overrides": ["data.image_size=16"]},
        {"device_name": "NVIDIA A100"},
        {"num_devices": 2},
        {"torch_version": "2.12.0"},
        {"python_version": "3.13.0"},
    ],
)
def test_other_work_or_another_machine_is_another_group(other):
    comparison = compare([row(), row("default", 5.0), row("default", 2.0, **other)])
    labels = [[setting.label for setting in group.settings] for group in comparison.groups]
    assert labels == [["default", "eager"], ["default"]]
    assert comparison.groups[1].settings[0].speedup is None


def test_each_model_is_compared_with_its_own_eager():
    rows = [
        row(model=model, mode=mode, step_ms=ms)
        for model, eager_ms, default_ms in (("a", 10.0, 5.0), ("b", 9.0, 3.0))
        for mode, ms in (("eager", eager_ms), ("default", default_ms))
    ]
    groups = {group.model: group.settings[0] for group in compare(rows).groups}
    assert {model: setting.speedup.median for model, setting in groups.items()} == {"a": 2.0, "b": 3.0}
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
        ({"status": "nan", "error": "nan: the loss is nan"}, "nan: the loss is nan"),
        ({"status": "failed"}, "failed"),
        ({"effective_mode": "default"}, "asked reduce-overhead, got default"),
        (
            {"effective_mode": "default", "effective_mode_reason": "no CUDA device"},
            "asked reduce-overhead, got default: no CUDA device",
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
    parts = [setting.rows for group in comparison.groups for setting in group.settings]
    parts += [drop.rows for drop in comparison.dropped]
    assert sorted(r.run_id for part in parts for r in part) == sorted(r.run_id for r in rows)


def test_no_rows_give_an_empty_comparison():
    assert compare([]) == Comparison(groups=(), dropped=())
