"""How long a race expects its jobs to take."""

from dataclasses import replace

import pytest

from trainkit.analysis.arms import Arm
from trainkit.results.ledger import Measurement
from trainkit.tuning.forecast import (
    CHECK_TIMES,
    FIRST_COMPILE_S,
    FIRST_JOB_S,
    WARM_SAVES,
    Entry,
    predicted_check_s,
    predicted_compile_s,
    predicted_s,
)
from trainkit.tuning.space import ArmSettings


def entry(overrides: str, inductor_multiple: float, compile_s: float | None = None, **fields) -> Entry:
    """An arm, with a job if it has a compile time."""
    settings = ArmSettings(tuple(overrides.split()), float(inductor_multiple > 0), inductor_multiple)
    made = Entry(Arm(overrides), settings)
    if compile_s is not None:
        values = {"repeat": 0, "is_final": False, "run_id": "r", "status": "ok", "used_s": 0.0, "figure": 1.0} | fields
        values.setdefault("wall_s", 10 + compile_s)
        made.jobs.append(Measurement(overrides=list(settings.overrides), compile_s=compile_s, **values))
    return made


EAGER = entry("compile.mode=eager", 0.0, 0.0)


def test_the_compile_of_the_base_is_not_that_of_another_setting():
    base = entry("compile.mode=default", 1.0, 60.0, wall_s=100.0)
    other = entry("compile.mode=default trainer.channels_last=true", 1.0)
    assert predicted_s(other, False, [base, other]) == 100.0


def test_before_any_compile_a_mode_takes_its_multiple_of_the_assumed_one():
    tuned = entry("compile.mode=max-autotune", 10.0)
    assert predicted_s(tuned, False, [EAGER, tuned]) == 10 + 10 * FIRST_COMPILE_S


def test_the_arm_with_the_most_shared_overrides_tells_the_compile_time():
    default = entry("compile.mode=default", 1.0, 20.0)
    tuned = entry("compile.mode=max-autotune", 10.0, 500.0)
    crossed = entry("compile.mode=max-autotune compile.scope=blocks", 5.0)
    assert predicted_compile_s(crossed, [EAGER, default, tuned]) == pytest.approx(250.0)
    assert predicted_compile_s(crossed, [EAGER, default]) == pytest.approx(100.0)


@pytest.mark.parametrize(("found", "expected_s"), [("cold", (1 - WARM_SAVES) * 20.0), ("warm", 20.0)])
def test_a_setting_that_differs_in_the_optimizer_finds_the_graphs_of_another_one(found: str, expected_s: float):
    default = entry("compile.mode=default", 1.0, 20.0, cache_found=found)
    foreach = entry("compile.mode=default optimizer.foreach=true", 1.0)
    assert predicted_compile_s(foreach, [EAGER, default]) == pytest.approx(expected_s)
    tuned = entry("compile.mode=max-autotune optimizer.foreach=true", 10.0)
    assert predicted_compile_s(tuned, [EAGER, default]) > 20.0


def test_a_compile_that_was_ended_by_its_limit_is_expected_to_take_at_least_as_long():
    fields = {"status": "timeout", "figure": None, "wall_s": 300.0, "share_s": 300.0}
    ended = entry("compile.mode=max-autotune", 10.0, 0.0, **fields)
    crossed = entry("compile.mode=max-autotune trainer.channels_last=true", 10.0)
    assert predicted_compile_s(crossed, [EAGER, ended]) == pytest.approx(300.0)


def test_a_warm_compile_is_not_expected_to_be_warmer_the_next_time():
    default = entry("compile.mode=default", 1.0, 60.0)
    assert predicted_s(default, False, [EAGER, default]) == pytest.approx(10 + (1 - WARM_SAVES) * 60)
    for repeat in (1, 2, 3):
        default.jobs += entry("compile.mode=default", 1.0, 30.0, repeat=repeat, check=repeat == 2).jobs
    assert predicted_s(default, False, [EAGER, default]) == 40.0


def test_a_first_job_that_found_the_cache_warm_was_as_warm_as_the_next_one():
    default = entry("compile.mode=default", 1.0, 3.0, cache_found="warm")
    assert predicted_s(default, False, [EAGER, default]) == 13.0


@pytest.mark.parametrize(("num_jobs", "is_final", "is_checked"), [(1, False, False), (1, True, True), (2, False, True)])
def test_the_first_job_whose_numbers_are_checked_takes_longer(num_jobs: int, is_final: bool, is_checked: bool):
    default = entry("compile.mode=default", 1.0)
    for repeat in range(num_jobs):
        default.jobs += entry("compile.mode=default", 1.0, 0.0, repeat=repeat, wall_s=10.0).jobs
    times = CHECK_TIMES if is_checked else 1
    assert predicted_s(default, is_final, [EAGER, default]) == 10 * times


def test_a_cold_first_job_tells_what_a_check_adds_until_a_warm_one_does():
    """The job would have taken 20 s, had it been warm."""
    default = entry("compile.mode=default", 1.0, 50.0)
    default.jobs += entry("compile.mode=default", 1.0, 0.0, repeat=1, check=True, wall_s=60.0).jobs
    blocks = entry("compile.mode=default compile.scope=blocks", 1.0, 0.0, cache_found="warm", wall_s=12.0)
    assert predicted_s(blocks, True, [EAGER, default, blocks]) == pytest.approx(3 * 12)
    default.jobs += entry("compile.mode=default", 1.0, 0.0, repeat=2, wall_s=15.0).jobs
    assert predicted_s(blocks, True, [EAGER, default, blocks]) == pytest.approx(4 * 12)
    mixed = entry("compile.mode=default", 1.0, 50.0, cache_found="mixed")
    mixed.jobs += entry("compile.mode=default", 1.0, 0.0, repeat=1, check=True, wall_s=60.0).jobs
    assert predicted_s(blocks, True, [EAGER, mixed, blocks]) == CHECK_TIMES * 12


def test_the_check_of_an_arm_without_a_job_follows_its_first_job():
    tried = entry("compile.mode=default", 1.0)
    warm_s = 10 + (1 - WARM_SAVES) * FIRST_COMPILE_S
    assert predicted_check_s(tried, [EAGER, tried]) == pytest.approx(CHECK_TIMES * warm_s)
    assert predicted_check_s(EAGER, [EAGER, tried]) == 0
    assert predicted_check_s(tried, [entry("compile.mode=eager", 0.0), tried]) == 0


def test_a_mode_multiplies_the_stages_of_inductor_alone():
    default = entry("compile.mode=default", 1.0, 20.0, before_inductor_s=8.0)
    tuned = entry("compile.mode=max-autotune", 10.0)
    assert predicted_compile_s(tuned, [EAGER, default]) == pytest.approx(8 + 10 * 12)
    by_shape = Entry(Arm("dynamic"), ArmSettings(("compile.dynamic=false",), compile=4.0, inductor=10.0))
    assert predicted_compile_s(by_shape, [EAGER, default]) == pytest.approx(4 * (8 + 10 * 12))


@pytest.mark.parametrize(("cut_off_s", "expected_s"), [(0.01, 10 * CHECK_TIMES), (40.0, 40.0)])
def test_a_check_that_the_end_of_the_budget_cut_off_tells_how_long_another_one_takes_at_least(
    cut_off_s: float, expected_s: float
):
    default = entry("compile.mode=default", 1.0)
    for repeat, wall_s in enumerate([10.0, 10.0, cut_off_s, 10.0]):
        fields = {"check": True, "status": "timeout", "figure": None} if repeat == 2 else {}
        default.jobs += entry("compile.mode=default", 1.0, 0.0, repeat=repeat, wall_s=wall_s, **fields).jobs
    assert predicted_s(default, True, [EAGER, default]) == expected_s
    default.jobs += entry("compile.mode=default", 1.0, 0.0, repeat=4, wall_s=14.0, check=True).jobs
    assert predicted_s(default, True, [EAGER, default]) == 10  # once is enough


def test_jobs_that_were_cut_off_tell_nothing_beside_whole_ones():
    fields = {"status": "timeout", "figure": None, "wall_s": 140.0}
    default = entry("compile.mode=default", 1.0, 0.0, **fields)
    default.jobs += entry("compile.mode=default", 1.0, 0.0, repeat=1, **fields).jobs
    assert predicted_s(default, False, [EAGER, default]) == 140
    assert not default.is_checked(is_final=False)
    default.jobs += entry("compile.mode=default", 1.0, 60.0, repeat=2, wall_s=70.0, cache_found="cold").jobs
    assert predicted_s(default, False, [EAGER, default]) == pytest.approx(10 + (1 - WARM_SAVES) * 60)
    assert predicted_s(default, True, [EAGER, default]) == 140
    default.jobs += entry("compile.mode=default", 1.0, 60.0, repeat=3, wall_s=30.0, check=True).jobs
    default.jobs += entry("compile.mode=default", 1.0, 60.0, repeat=4, wall_s=10.0).jobs
    other = entry("compile.mode=reduce-overhead", 1.0, 3.0, cache_found="warm", wall_s=10.0)
    assert predicted_s(other, True, [EAGER, default, other]) == 30


def test_a_first_job_that_the_end_of_the_budget_cut_off_is_expected_as_one_that_did_not_run():
    default = entry("compile.mode=default", 1.0, 0.0, wall_s=0.01, status="timeout", figure=None)
    assert predicted_s(default, False, [EAGER, default]) == 10 + FIRST_COMPILE_S
    tuned = entry("compile.mode=max-autotune", 10.0)
    assert predicted_compile_s(tuned, [EAGER, default]) == 10 * FIRST_COMPILE_S


def test_a_compile_that_found_its_graphs_in_the_cache_tells_nothing_of_another_one():
    warm = entry("compile.mode=default", 1.0, 3.0, cache_found="warm")
    tuned = entry("compile.mode=max-autotune", 10.0)
    assert predicted_compile_s(tuned, [EAGER, warm]) == 10 * FIRST_COMPILE_S
    cold = entry("compile.mode=default trainer.channels_last=true", 1.0, 20.0, cache_found="cold")
    assert predicted_compile_s(tuned, [EAGER, warm, cold]) == 200.0


def test_a_base_that_was_ended_says_nothing_of_the_time_of_others():
    base = entry("compile.mode=eager", 0.0, 0.0, status="timeout", figure=None, wall_s=600.0, share_s=600.0)
    default = entry("compile.mode=default", 1.0)
    assert predicted_s(default, False, [base, default]) == FIRST_JOB_S + FIRST_COMPILE_S
    base.jobs = [*EAGER.jobs, replace(base.jobs[0], wall_s=0.01, share_s=None)]
    assert predicted_s(default, False, [base, default]) == 10 + FIRST_COMPILE_S
