"""Efficiencies: which rows are compared over numbers of processes, and how."""

from dataclasses import replace

import pytest

from tests.sweeps import SCALED, repeats, scaling_sweep
from trainkit.analysis.comparison import compare
from trainkit.analysis.machines import step_ratio
from trainkit.analysis.scaling import Scaling, ScalingPoint, find_scalings, indistinguishable
from trainkit.results.row import Row


def scaled(mode: str, world_size: int, *steps_ms: float, **fields) -> list[Row]:
    strategy = "single" if world_size == 1 else "ddp"
    return repeats(mode, *steps_ms, **{"world_size": world_size, "strategy": strategy} | fields)


def only(rows: list[Row]) -> Scaling:
    (scaling,) = find_scalings(rows)
    return scaling


def point(scaling: Scaling, label: str, num_processes: int) -> ScalingPoint:
    (found,) = [one for one in scaling.points_with(num_processes) if one.label == label]
    return found


def test_efficiency_is_the_step_with_one_process_over_the_step_with_several():
    rows = scaled("eager", 1, 20.0, 20.1) + scaled("default", 1, 10.0, 10.1)
    rows += scaled("eager", 2, 25.0, 25.1) + scaled("default", 2, 12.5, 12.6)
    scaling = only(rows)
    assert not scaling.is_strong
    assert scaling.process_counts == [1, 2]
    eager, default = point(scaling, "eager", 2), point(scaling, "default", 2)
    assert eager.efficiency.value == pytest.approx(0.8, rel=1e-2)
    assert eager.best_efficiency.value == pytest.approx(0.4, rel=1e-2)
    assert default.efficiency.value == default.best_efficiency.value == pytest.approx(0.8, rel=1e-2)
    assert default.efficiency.low < default.efficiency.value < default.efficiency.high < 1
    assert point(scaling, "default", 1).efficiency.value == point(scaling, "default", 1).best_efficiency.value == 1
    assert point(scaling, "eager", 1).best_efficiency.value == pytest.approx(0.5, rel=1e-2)


def test_strong_scaling_divides_the_batch():
    rows = scaled("eager", 1, 20.0, 20.1, batch_size=64) + scaled("eager", 2, 12.5, 12.6, batch_size=32)
    scaling = only(rows)
    assert scaling.is_strong
    assert point(scaling, "eager", 2).efficiency.value == pytest.approx(0.8, rel=1e-2)


def test_weak_and_strong_scaling_of_one_sweep_are_two_tables():
    rows = scaled("eager", 1, 20.0, batch_size=64) + scaled("eager", 2, 12.5, batch_size=32)
    weak, strong = find_scalings(rows + scaled("eager", 2, 22.0, batch_size=64))
    assert (weak.is_strong, point(weak, "eager", 2).efficiency.value) == (False, pytest.approx(20 / 22))
    assert (strong.is_strong, point(strong, "eager", 2).efficiency.value) == (True, pytest.approx(0.8))


def test_batches_of_several_sizes_scale_weakly_alone():
    sizes = {"batch_size": None, "batch_sizes": [8, 16]}
    rows = scaled("eager", 1, 20.0, **sizes) + scaled("eager", 2, 25.0, **sizes)
    assert not only(rows).is_strong


@pytest.mark.parametrize(
    "other",
    [
        {"model": "resnet50"},
        {"batch_size": 24},
        {"device_name": "another"},
        {"torch_version": "2.12.0"},
        {"schema_version": 2},
        {"overrides": ["trainer.accumulate_grad_batches=2"]},
        {"kind": "forward"},
    ],
)
def test_other_work_is_no_scaling(other):
    assert find_scalings(scaled("eager", 1, 20.0) + scaled("eager", 2, 25.0, **other)) == ()


def test_one_number_of_processes_is_no_scaling():
    assert find_scalings(scaled("eager", 2, 20.0) + scaled("default", 2, 25.0)) == ()


def test_a_job_may_see_its_own_devices_alone():
    assert only(scaled("eager", 1, 20.0, num_devices=1) + scaled("eager", 2, 25.0, num_devices=2))


def test_settings_of_ddp_are_compared_with_the_one_process_on_which_they_have_no_effect():
    overrides = [f"ddp.bucket_cap_mb={size}" for size in (25, 100)]
    rows = scaled("eager", 1, 20.0, overrides=overrides[:1]) + scaled("eager", 1, 20.2, overrides=overrides[1:])
    rows += scaled("eager", 2, 25.0, overrides=overrides[:1]) + scaled("eager", 2, 22.0, overrides=overrides[1:])
    scaling = only(rows)
    assert [(one.label, one.num_processes) for one in scaling.points] == [
        ("eager, ddp.bucket_cap_mb=100", 2), ("eager, ddp.bucket_cap_mb=25", 2), ("eager", 1),
    ]  # fmt: skip
    assert len(point(scaling, "eager", 1).rows) == 2
    assert scaling.points[0].efficiency.value == pytest.approx(20.1 / 22, rel=1e-3)


def test_the_fewest_processes_are_the_base_and_their_settings_of_ddp_count():
    rows = scaled("eager", 2, 20.0) + scaled("eager", 4, 25.0)
    rows += scaled("eager", 2, 10.0, overrides=["ddp.static_graph=true"])
    (four,) = only(rows).points_with(4)
    assert (four.efficiency.value, four.best_efficiency.value) == (pytest.approx(0.8), pytest.approx(0.4))


def test_the_best_setting_is_of_the_same_precision():
    rows = scaled("eager", 1, 20.0) + scaled("eager", 1, 10.0, precision="bf16-mixed") + scaled("eager", 2, 25.0)
    (two,) = only(rows).points_with(2)
    assert two.best_efficiency.value == pytest.approx(0.8)
    assert two.label == "eager, 32-true"


def test_a_setting_without_a_base_has_no_efficiency():
    rows = scaled("eager", 1, 20.0) + scaled("eager", 2, 25.0) + scaled("default", 2, 12.0)
    default = point(only(rows), "default", 2)
    assert default.efficiency is None
    assert default.best_efficiency is None  # 1.67 of eager would be what the mode gains, not what two processes cost
    assert point(only(rows), "eager", 2).best_efficiency.value == pytest.approx(0.8)


def test_modes_that_were_measured_with_other_numbers_of_processes_are_no_scaling():
    assert find_scalings(scaled("default", 1, 10.0) + scaled("eager", 2, 25.0)) == ()


def test_a_setting_that_was_measured_with_fewer_processes_alone_is_left_out():
    rows = scaled("default", 1, 10.0) + scaled("eager", 2, 25.0) + scaled("eager", 4, 27.0)
    assert only(rows).process_counts == [2, 4]
    assert point(only(rows), "eager", 4).efficiency.value == pytest.approx(25 / 27)


def test_indistinguishable_are_those_whose_difference_may_be_chance():
    rows = scaled("eager", 1, 20.0) + scaled("eager", 2, 25.0, 25.1, 25.2)
    rows += scaled("default", 2, 25.02, 25.12, 25.22) + scaled("reduce-overhead", 2, 30.0, 30.1, 30.2)
    points = only(rows).points_with(2)
    assert [one.label for one in points] == ["eager", "default", "reduce-overhead"]
    assert [one.label for one in indistinguishable(points)] == ["default"]


def test_what_is_measurably_faster_than_the_shortest_median_is_not_told_from_it():
    rows = scaled("eager", 1, 20.0) + scaled("eager", 2, 10.0, 10.0, 10.0, 13.0, 13.0)
    rows += scaled("default", 2, 10.1, 10.1, 10.1, 10.1, 10.1)
    points = only(rows).points_with(2)
    assert [one.label for one in points] == ["eager", "default"]
    sure = [replace(points[0], rows=tuple(scaled("eager", 2, 11.9, 12.0, 12.1))), points[1]]
    assert step_ratio(points[1].rows, sure[0].rows).measurable
    assert [one.label for one in indistinguishable(sure)] == ["default"]


def test_the_best_setting_is_that_of_the_same_machine():
    rows = scaled("eager", 1, 20.0, machine_id="slow") + scaled("eager", 1, 10.0, machine_id="fast")
    rows += scaled("default", 1, 14.0, machine_id="slow") + scaled("max-autotune", 1, 9.0, machine_id="fast")
    rows += scaled("default", 2, 14.0, machine_id="slow") + scaled("max-autotune", 2, 9.0, machine_id="fast")
    scaling = only(rows)
    assert [one.label for one in scaling.points_with(2)] == ["default", "max-autotune"]
    assert [one.label for one in scaling.points_with(1)] == ["default", "max-autotune", "eager"]
    assert point(scaling, "default", 2).best_efficiency.value == pytest.approx(1.0)


def test_rows_that_a_comparison_drops_do_not_count():
    rows = scaling_sweep()
    failed = [replace(row, status="failed") if row.world_size == 2 else row for row in rows]
    assert compare(rows).scalings[0].process_counts == [1, 2, 4]
    assert compare(failed).scalings[0].process_counts == [1, 4]


def test_samples_a_second_are_per_process_and_groups_stay_apart():
    comparison = compare(scaling_sweep())
    assert [group.world_size for group in comparison.groups] == [1, 2, 4]
    (scaling,) = comparison.scalings
    for one in scaling.points:
        assert one.samples_per_s.median == pytest.approx(16e3 / SCALED[one.label][one.num_processes], rel=0.02)
    assert [one.num_processes for one in scaling.points] == [1, 2, 4] * 3
    assert [one.label for one in scaling.points_with(4)] == ["default", "reduce-overhead", "eager"]


def test_power_is_the_energy_of_each_gpu_over_its_time():
    rows = scaled("eager", 1, 20.0, 20.0, energy_per_step_j=14.0)
    rows += scaled("eager", 2, 25.0, 25.0, energy_per_step_j=26.0, step_overhead_ms=1.0)
    scaling = only(rows)
    assert point(scaling, "eager", 1).power_w.median == pytest.approx(700)
    assert point(scaling, "eager", 2).power_w.median == pytest.approx(500)
    unknown = only(scaled("eager", 1, 20.0) + scaled("eager", 2, 25.0))
    assert point(unknown, "eager", 2).power_w is None


def test_an_efficiency_is_of_runs_on_the_same_machine():
    rows = scaled("eager", 1, 20.0, 20.1, machine_id="slow") + scaled("eager", 1, 18.0, 18.1, machine_id="fast")
    rows += scaled("eager", 2, 20.0, 20.1, machine_id="fast")
    assert point(only(rows), "eager", 2).efficiency.value == pytest.approx(0.9, rel=1e-2)
