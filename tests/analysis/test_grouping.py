"""Rows in, groups and labels out: which rows are repeats, which did the same work."""

from dataclasses import replace

import pytest

from tests.sweeps import candidates_of, small_row
from trainkit.analysis.comparison import compare


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
        ("compile_options", {"max_fusion_size": 8}, "default, options=max_fusion_size=8"),
        ("overrides", ["data.num_workers=4"], "default, data.num_workers=4"),
    ],
)
def test_a_setting_that_differs_is_said_in_the_label(field, value, label):
    compared = candidates_of(compare([small_row("default", 5.0), small_row("default", 4.0, **{field: value})]))
    assert len(compared) == 2
    assert next(iter(compared)) == label


def test_what_all_settings_have_is_no_part_of_their_labels():
    chain = ["model=simple_net model.hidden=256 model.depth=2", "model=simple_net"]
    asked = [(None, "wait"), (chain, "wait"), (chain, "fallback")]
    rows = [small_row(kind="forward", fallback=fallback, late=late) for fallback, late in asked]
    (group,) = compare(rows).groups
    assert [candidate.label for candidate in group.candidates] == [
        "late=wait",
        "fallback, late=wait",
        "fallback, late=fallback",
    ]
    assert group.mode == "eager"
    assert group.long_values == {"forward.fallback": " / ".join(chain)}
    compiled = small_row("default", kind="forward", fallback=["model=simple_cnn"], late="wait")
    (group,) = compare([*rows, compiled]).groups
    assert group.mode is None
    assert group.long_values == {}
    assert "default, fallback=model=simple_cnn, late=wait" in [candidate.label for candidate in group.candidates]


def test_gradients_averaged_within_the_graph_are_compared_with_eager_ddp():
    eager = small_row(strategy="ddp", world_size=2, step_ms=5.0)
    compiled = small_row("default", strategy="compiled", world_size=2, step_ms=4.0)
    assert candidates_of(compare([eager, compiled]))["default, ddp.strategy=compiled"].speedup.value == 5 / 4
    sharded = small_row("default", strategy="fsdp2", world_size=2, step_ms=4.0)
    assert candidates_of(compare([eager, sharded]))["default, ddp.strategy=fsdp2"].speedup is None
    alone = [small_row(step_ms=5.0), small_row("default", strategy="compiled", step_ms=4.0)]
    assert candidates_of(compare(alone))["default, ddp.strategy=compiled"].speedup.value == 5 / 4


def test_gradients_averaged_within_the_graph_are_compared_with_the_eager_run_of_the_same_settings_of_ddp():
    buckets = {"overrides": ["ddp.bucket_cap_mb=100"], "world_size": 2}
    rows = [small_row(strategy="ddp", step_ms=5.0, **buckets)]
    rows.append(small_row("default", strategy="compiled", step_ms=4.0, **buckets))
    label = "default, ddp.strategy=compiled"
    assert candidates_of(compare(rows))[label].speedup.value == 5 / 4
    label += ", ddp.bucket_cap_mb=100"
    plain = small_row(strategy="ddp", world_size=2, step_ms=6.0)
    assert candidates_of(compare([plain, *rows]))[label].speedup.value == 5 / 4
    assert candidates_of(compare([plain, rows[1]]))[label].speedup.value == 6 / 4
    sharded = replace(rows[1], overrides=["ddp.bucket_cap_mb=100", "ddp.shard_optimizer=true"])
    compared = candidates_of(compare([plain, rows[0], sharded]))
    assert compared[f"{label}, ddp.shard_optimizer=true"].speedup.value == 5 / 4


def test_amp_says_no_more_than_the_precisions_do():
    half = {"precision": "bf16-mixed", "matmul_precision": "high"}  # conf/amp/bf16.yaml
    full = {"overrides": ["amp=off"], "matmul_precision": "highest"}
    rows = [small_row(**full), small_row(overrides=["amp=bf16"], step_ms=5.0, **half)]
    assert list(candidates_of(compare(rows))) == ["bf16-mixed", "32-true"]
    asked = small_row("default", overrides=["amp.precision=bf16-mixed"], step_ms=4.0, **half)
    assert candidates_of(compare([*rows, asked]))["default, bf16-mixed"].speedup.value == pytest.approx(5 / 4)
    typed = small_row(overrides=["amp.matmul_precision=high"], matmul_precision="high", step_ms=8.0)
    assert list(candidates_of(compare([*rows, typed]))) == [
        "bf16-mixed, amp.matmul_precision=high", "32-true, amp.matmul_precision=high",
        "32-true, amp.matmul_precision=highest",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        {"model": "simple_cnn"},
        {"data": "digits"},
        {"batch_size": 32},
        {"world_size": 2},
        {"num_parallel_jobs": 2},
        {"overrides": ["model.width=32"]},
        {"overrides": ["data.image_size=16"]},
        {"overrides": ["trainer.accumulate_grad_batches=4"]},  # a step of more batches
        {"device_name": "NVIDIA A100"},
        {"num_devices": 2},
        {"torch_version": "2.12.0"},
        {"python_version": "3.13.0"},
        {"schema_version": 2},
    ],
)
def test_other_work_or_another_machine_is_another_group(other):
    comparison = compare([small_row(), small_row("default", 5.0), small_row("default", 2.0, **other)])
    labels = [[setting.label for setting in group.candidates] for group in comparison.groups]
    assert labels == [["default", "eager"], ["default"]]
    assert comparison.groups[1].candidates[0].speedup is None


def test_a_group_has_a_schema_version_where_there_are_several():
    new = [small_row(), small_row("default", 5.0)]
    old = [replace(row, schema_version=2, step_time_ms_p50=2 * row.step_time_ms_p50) for row in new]
    groups = compare([*new, *old]).groups
    assert [group.schema_version for group in groups] == [3, 2]
    assert [group.candidates[0].speedup.value for group in groups] == pytest.approx([2.0, 2.0])
    for rows in (new, old):
        (group,) = compare(rows).groups
        assert group.schema_version is None


def test_what_saves_time_or_memory_is_a_setting_however_it_was_typed():
    asked = {
        "": [],
        ", optimizer.fused=false": ["optimizer.fused=False"],
        ", optimizer.foreach=true": ["optimizer.foreach=true"],
        ", trainer.channels_last=true": ["trainer.channels_last=true"],
        ", trainer.activation_checkpointing=true": ["trainer.activation_checkpointing=True"],
    }
    rows = [small_row(step_ms=ms, overrides=overrides) for ms, overrides in enumerate(asked.values(), start=1)]
    again = [
        replace(row, overrides=[name.replace("T", "t").replace("F", "f") for name in row.overrides]) for row in rows
    ]
    compared = candidates_of(compare(rows + again))
    assert list(compared) == [f"eager{label}" for label in asked]
    assert {setting.num_repeats for setting in compared.values()} == {2}


def test_the_same_number_is_one_setting_however_it_was_typed():
    spellings = ["optimizer.lr=0.1", "optimizer.lr=1e-1", "+optimizer.lr=.10", "optimizer.lr=0.100"]
    rows = [small_row(overrides=[spelling]) for spelling in spellings]
    rows += [small_row("default", 5.0, overrides=["optimizer.lr=1E-1"])]
    (group,) = compare([*rows, small_row(step_ms=11.0, overrides=["optimizer.lr=0.2"])]).groups
    assert {candidate.label: candidate.num_repeats for candidate in group.candidates} == {
        "default, optimizer.lr=0.1": 1, "eager, optimizer.lr=0.1": 4, "eager, optimizer.lr=0.2": 1,
    }  # fmt: skip
    assert group.candidates[0].speedup.value == pytest.approx(2.0)
    clipped = [small_row(overrides=[f"trainer.gradient_clip_val={value}"]) for value in ("1", "1.0")]
    (group,) = compare(clipped).groups
    assert len(group.candidates) == 1
    assert group.overrides == ("trainer.gradient_clip_val=1",)


@pytest.mark.parametrize("values", [("1", "1.0"), ("007", "7"), ("1e", "1"), ("1.2.3", "1.23")])
def test_values_that_may_mean_something_else_are_two_settings(values):
    rows = [small_row(overrides=[f"trainer.limit_train_batches={value}"]) for value in values]
    assert len(candidates_of(compare(rows))) == 2


def test_a_group_says_what_all_its_rows_were_asked_alike():
    shared = ["model=resnet18", "amp=bf16", "trainer.max_epochs=2", "seed=3"]
    rows = [
        small_row(mode, overrides=[*shared, f"compile.mode={mode}"], batch_size=32) for mode in ("eager", "default")
    ]
    (group,) = compare(rows).groups
    assert (group.model, group.data, group.batch_size, group.world_size) == ("resnet18", "synthetic", 32, 1)
    assert (group.precision, group.overrides) == ("32-true", ("trainer.max_epochs=2", "seed=3"))
    assert group.machine["device_name"] == "NVIDIA H100"
    (mixed,) = compare([small_row(), small_row(precision="bf16-mixed")]).groups
    assert mixed.precision is None


def test_what_changes_no_step_makes_no_setting():
    rows = [
        small_row(overrides=["seed=1", "compile.on_error=eager", "sweep=a"], seed=1, sweep_id="a"),
        small_row(overrides=["trainer.devices=1", "compile.mode=eager"], accelerator="gpu"),
    ]
    assert [setting.num_repeats for setting in candidates_of(compare(rows)).values()] == [2]


def test_another_deadline_is_other_work_and_a_chain_is_a_setting():
    rows = [
        small_row(kind="forward", deadline_ms=deadline_ms, fallback=fallback)
        for deadline_ms in (2.0, 10.0)
        for fallback in (None, ["model=simple_net"])
    ]
    assert [len(group.candidates) for group in compare(rows).groups] == [2, 2]


def test_the_label_of_a_job_that_never_started_says_what_it_was_asked():
    """Its row has defaults where only a started run knows better: they are no difference."""
    killed = replace(
        small_row("default", None, model="simple_cnn", status="failed", error="killed by SIGKILL"),
        **{"strategy": "auto", "world_size": 1, "device_name": None, "num_devices": None, "torch_version": None},
    )
    comparison = compare([small_row(world_size=2, strategy="ddp"), killed])
    assert [drop.label for drop in comparison.dropped] == ["simple_cnn, default"]
