"""The race over a machine that is made up: order, budget, failures, and going on after a kill."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.tuning.machine import BEGINS, FACTORS, GIB, IDENTITY, Machine
from trainkit.config.factors import Factor, FactorValue, LeftOut
from trainkit.results.ledger import Ledger
from trainkit.results.row import Row
from trainkit.sweep.processes import GRACE_S
from trainkit.tuning.advise import unmeasured
from trainkit.tuning.advisor import MOST_CROSSED, Advisor
from trainkit.tuning.budget import Budget
from trainkit.tuning.goal import Goal
from trainkit.tuning.measuring import BUDGET_SHARE, UNFINISHED, JobRequest, JobResult
from trainkit.tuning.space import Space

FAST = "trainer.channels_last=true"
CUDA_GRAPHS = "compile.mode=reduce-overhead"
BEST = f"{CUDA_GRAPHS} {FAST}"
SIZE = Factor("data.batch_size", {"auto": FactorValue()}, is_named=True)


def chosen(advisor: Advisor) -> str:
    standing = advisor.race.standing()
    assert standing.choice is not None
    return standing.choice.name


def race(machine: Machine, folder: Path, **options) -> Advisor:
    advisor = machine.advisor(folder, **options)
    advisor.run(machine.measure)
    return advisor


def test_promising_values_are_combined_and_the_best_combination_is_found(tmp_path: Path):
    machine = Machine()
    advisor = race(machine, tmp_path, budget_s=3600)
    assert advisor.race.standing().is_decided
    assert chosen(advisor) == BEST  # max-autotune is as fast within 2 %, and compiles longer
    assert machine.jobs[0].name == "compile.mode=eager"
    assert not machine.jobs[0].check
    last_two = (BEST, f"compile.mode=max-autotune {FAST}")
    assert {job.name for job in machine.jobs[-4:]} == set(last_two)
    for name in last_two:
        assert sum(job.check for job in machine.jobs if job.name == name) == 1


def test_a_compile_that_would_not_fit_is_not_begun_and_is_said(tmp_path: Path):
    machine = Machine()
    advisor = race(machine, tmp_path, budget_s=400)
    assert machine.now_s <= 400
    assert "compile.mode=max-autotune" not in [job.name for job in machine.jobs]
    (not_tried,), _ = unmeasured(advisor)
    assert not_tried == LeftOut("max-autotune", "needs about 4.3 min")
    assert chosen(advisor) == BEST


@pytest.mark.parametrize("budget_s", [100, 240, 300, 480, 1200])
def test_the_budget_is_kept(budget_s: float, tmp_path: Path):
    machine = Machine(compile_s={"compile.mode=max-autotune": 1000.0}, hangs=("compile.mode=default",))
    race(machine, tmp_path, budget_s=budget_s)
    assert machine.now_s <= budget_s


@pytest.mark.parametrize("spread", [0.001, 0.05, 0.3])
@pytest.mark.parametrize("budget_s", [120, 240, 600])
def test_an_undecided_race_ends_when_no_job_fits_any_more(spread: float, budget_s: float, tmp_path: Path):
    """Modes that are as fast as eager, in jobs of 10 s."""
    machine = Machine(step_ms={}, compile_s={}, spread=spread)
    advisor = race(machine, tmp_path, budget_s=budget_s)
    assert advisor.race.standing().is_decided or 0 <= budget_s - machine.now_s < GRACE_S + 10


def test_imports_before_a_job_are_no_part_of_the_time_that_other_jobs_are_expected_to_take(tmp_path: Path):
    """The base's job waits for 60 s, and takes 10 s."""
    machine = Machine(imports_s=60.0)
    race(machine, tmp_path, budget_s=220)
    assert [job.name for job in machine.jobs[:3]] == ["compile.mode=eager", "compile.mode=default", CUDA_GRAPHS]


@pytest.mark.parametrize("left_s", [75, 50])
def test_a_race_that_goes_on_begins_a_job_if_its_imports_leave_the_time(left_s: float, tmp_path: Path):
    machine = Machine(imports_s=40.0)

    def stop_after_three(request: JobRequest) -> JobResult:
        if len(machine.jobs) == 3:
            raise KeyboardInterrupt
        return machine.measure(request)

    with pytest.raises(KeyboardInterrupt):
        machine.advisor(tmp_path, budget_s=300).run(stop_after_three)
    resumed = machine.advisor(tmp_path, budget_s=machine.now_s + left_s)
    resumed.run(machine.measure)
    assert all(job.status == "ok" for job in resumed.ledger.measurements)
    assert (len(machine.jobs) > 3) is (left_s == 75)


def test_a_race_that_scatters_ends_at_the_most_jobs_of_a_setting(tmp_path: Path):
    machine = Machine(step_ms={}, compile_s={}, spread=0.3)
    advisor = race(machine, tmp_path, budget_s=7200)
    standing = advisor.race.standing()
    assert not standing.is_decided
    assert advisor.race.is_at_cap(standing)


def test_a_compile_that_outlasts_its_share_is_ended_and_is_said(tmp_path: Path):
    machine = Machine(compile_s={"compile.mode=reduce-overhead": 2000.0})
    advisor = race(machine, tmp_path)
    arm = advisor.entries["compile.mode=reduce-overhead"].arm
    assert arm.excluded == "timeout: stopped after 120 s (its share of hydra.sweeper.budget_min)"
    assert [job.name for job in machine.jobs].count(arm.name) == 1
    assert "reduce-overhead" not in chosen(advisor)


def test_an_arm_whose_job_is_cut_off_by_the_end_of_the_budget_is_raced_with_a_larger_one(tmp_path: Path):
    machine = Machine(compile_s={"compile.mode=reduce-overhead": 100.0})
    machine.step_ms["compile.mode=max-autotune"] = 30.0
    advisor = race(machine, tmp_path, budget_s=150)
    cut_off = advisor.entries["compile.mode=reduce-overhead"]
    assert [job.status for job in cut_off.jobs] == ["timeout"]
    assert cut_off.arm.excluded is None
    not_tried, _ = unmeasured(advisor)
    assert LeftOut("reduce-overhead", cut_off.jobs[0].reason) in not_tried
    assert machine.now_s <= 150
    advisor = race(machine, tmp_path, budget_s=3600)
    assert "reduce-overhead" in chosen(advisor)


def test_an_arm_that_outlasts_the_users_limit_is_raced_with_a_larger_one(tmp_path: Path):
    machine = Machine(compile_s={"compile.mode=reduce-overhead": 100.0})
    machine.step_ms["compile.mode=max-autotune"] = 30.0
    advisor = race(machine, tmp_path, budget_s=3600, job_limit_s=60)
    assert advisor.entries["compile.mode=reduce-overhead"].arm.excluded is not None
    num_jobs = len(machine.jobs)
    race(machine, tmp_path, budget_s=3600, job_limit_s=60)
    assert len(machine.jobs) == num_jobs
    advisor = race(machine, tmp_path, budget_s=3600, job_limit_s=200)
    assert "reduce-overhead" in chosen(advisor)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "oom", "error": "oom: CUDA out of memory"}, "oom: CUDA out of memory"),
        ({"status": "failed", "error": "ValueError: no"}, "failed: ValueError: no"),
        ({"check_passed": False, "check_reason": "loss"}, "numbers differ from eager: loss"),
        ({"effective_mode": "mixed"}, "requested default, effective mixed"),
    ],
)
def test_a_planted_arm_that_does_not_do_its_work_is_not_chosen(fields: dict, reason: str, tmp_path: Path):
    machine = Machine(fails={"compile.mode=reduce-overhead": fields, "compile.mode=max-autotune": fields})
    advisor = race(machine, tmp_path, budget_s=3600)
    assert chosen(advisor) == f"compile.mode=default {FAST}"
    assert advisor.entries["compile.mode=reduce-overhead"].arm.excluded == reason or "check" in str(fields)
    if "check_passed" in fields:
        assert advisor.entries[BEST].arm.excluded == reason


def test_wrong_numbers_are_found_before_many_jobs(tmp_path: Path):
    """The wrong mode is as fast as the right one, and both scatter."""
    machine = Machine(
        spread=0.05, fails={"compile.mode=reduce-overhead": {"check_passed": False, "check_reason": "loss"}}
    )
    machine.step_ms["compile.mode=default"] = 10.0
    advisor = race(machine, tmp_path, budget_s=3600)
    arm = advisor.entries["compile.mode=reduce-overhead"].arm
    assert arm.excluded == "numbers differ from eager: loss"
    assert [job.check for job in machine.jobs if job.name == arm.name] == [False, False, True]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"check_passed": True}, None),
        ({"check_passed": None, "check_reason": "random numbers"}, "random numbers"),
        ({"check_passed": None}, "check=true does not go with these settings"),
    ],
)
def test_numbers_that_were_to_be_compared_and_were_not_are_kept(fields: dict, reason: str | None, tmp_path: Path):
    advisor = race(Machine(fails={"compile.mode=reduce-overhead": fields}), tmp_path, budget_s=3600)
    assert [job.unchecked for job in advisor.entries[BEST].jobs][:3] == [None, None, reason]


@pytest.mark.parametrize(("budget_s", "choice"), [(100, "compile.mode=default"), (140, CUDA_GRAPHS), (200, BEST)])
def test_a_short_race_tries_settings_before_it_repeats_those_that_it_knows(
    budget_s: float, choice: str, tmp_path: Path
):
    advisor = race(Machine(), tmp_path, budget_s=budget_s)
    assert chosen(advisor) == choice
    assert not advisor.is_unchecked(advisor.race.standing())


@pytest.mark.parametrize("budget_s", [350, 390, 410])
def test_where_eager_is_the_fastest_a_long_compile_leaves_the_time_to_try_others(budget_s: float, tmp_path: Path):
    machine = Machine()
    machine.step_ms["compile.mode=eager"] = 8.0
    advisor = race(machine, tmp_path, budget_s=budget_s)
    assert chosen(advisor) == f"compile.mode=eager {FAST}"
    assert advisor.race.is_confirmed(advisor.race.standing())


@pytest.mark.parametrize("budget_s", [185, 205, 225, 245])
def test_repeats_leave_the_time_for_the_interval_of_the_gain(budget_s: float, tmp_path: Path):
    advisor = race(Machine(spread=0.05), tmp_path, budget_s=budget_s)
    standing, base = advisor.race.standing(), advisor.race.arms[0]
    assert not standing.is_decided
    assert len(base.all_figures) >= 2
    assert advisor.race.gain(standing.choice, base).low is not None


@pytest.mark.parametrize(("budget_s", "has_final"), [(105, False), (110, True)])
def test_a_decided_race_gives_its_gain_an_interval(budget_s: float, has_final: bool, tmp_path: Path):
    """Eager takes 10 s, and the job of default in the final 35 s, with its comparison."""
    machine = Machine(check_s=25.0)
    modes = [Factor("compile.mode", {"default": FactorValue()})]
    advisor = race(machine, tmp_path, budget_s=budget_s, factors=modes)
    assert advisor.race.standing().is_decided
    assert advisor.race.is_confirmed(advisor.race.standing()) is False
    assert any(job.is_final for job in machine.jobs) is has_final
    assert len(advisor.race.arms[0].all_figures) == 2


def test_what_is_tried_leaves_the_time_to_compare_its_numbers_with_those_of_eager(tmp_path: Path):
    """The combination with max-autotune is the fastest by 1 %, and would use the budget up."""
    machine = Machine()
    advisor = race(machine, tmp_path, budget_s=800)
    assert [job.name for job in machine.jobs].count(f"compile.mode=max-autotune {FAST}") == 0
    assert chosen(advisor) == BEST
    assert advisor.race.is_confirmed(advisor.race.standing())


def test_a_setting_is_tried_in_the_time_of_a_final_that_does_not_fit(tmp_path: Path):
    """The numbers of the choice so far are compared with eager's before it."""
    machine = Machine()
    advisor = race(machine, tmp_path, budget_s=180)
    assert [(job.name, job.check) for job in machine.jobs[2:]] == [
        ("compile.mode=reduce-overhead", False),
        (f"compile.mode=default {FAST}", False),
        ("compile.mode=reduce-overhead", True),
        (BEST, False),
    ]
    assert chosen(advisor) == BEST


@pytest.mark.parametrize("budget_s", [150, 220, 240, 280, 330])
def test_a_leader_is_compared_with_eager_before_the_budget_ends(budget_s: float, tmp_path: Path):
    machine = Machine(fails={"compile.mode=reduce-overhead": {"check_passed": False, "check_reason": "loss"}})
    advisor = race(machine, tmp_path, budget_s=budget_s)
    assert "reduce-overhead" not in chosen(advisor)
    assert machine.now_s <= budget_s
    (wrong, _), crossed = advisor.entries["compile.mode=reduce-overhead"].jobs[-2:], advisor.entries.get(BEST)
    assert wrong.figure is not None
    assert crossed is None or crossed.arm.excluded.startswith("numbers differ from eager")


@pytest.mark.parametrize(("budget_s", "is_compared"), [(180, False), (200, True), (240, True), (330, True)])
def test_a_short_race_compares_the_numbers_of_what_it_advises_if_there_is_time(
    budget_s: float, is_compared: bool, tmp_path: Path
):
    advisor = race(Machine(), tmp_path, budget_s=budget_s)
    assert "eager" not in chosen(advisor)
    assert any(job.check for job in advisor.entries[chosen(advisor)].jobs) is is_compared
    assert advisor.is_unchecked(advisor.race.standing()) is not is_compared


def test_a_comparison_beside_another_process_is_made_again(tmp_path: Path):
    wrong = {"check_passed": False, "check_reason": "loss"}
    machine = Machine(fails={"compile.mode=reduce-overhead": wrong})
    checks = []

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        if request.check and "compile.mode=reduce-overhead" in request.overrides:
            checks.append(request.name)
            if checks.count(request.name) == 1:
                return replace(row, foreign_processes=1)
        return row

    advisor = machine.advisor(tmp_path, budget_s=7200)
    advisor.run(machine.timed(row_of))
    assert "reduce-overhead" not in chosen(advisor)


def test_ranks_that_differ_are_out_though_their_numbers_cannot_be_compared(tmp_path: Path):
    differ = {"check_reason": "random numbers", "check_graphs_agree": False, "check_ranks_reason": "2 graphs and 3"}
    machine = Machine(fails={"compile.mode=reduce-overhead": differ})

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        return row if request.check else replace(row, check_graphs_agree=None)

    advisor = machine.advisor(tmp_path, budget_s=7200)
    advisor.run(machine.timed(row_of))
    assert "reduce-overhead" not in chosen(advisor)
    reasons = [entry.arm.excluded for entry in advisor.entries.values() if entry.arm.excluded]
    assert "the ranks differ: 2 graphs and 3" in reasons


@pytest.mark.parametrize("status", ["timeout", "oom"])
def test_a_comparison_that_does_not_end_is_not_the_fault_of_its_setting(status: str, tmp_path: Path):
    machine = Machine()

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        return replace(row, status=status, error=f"{status}: no") if request.check else row

    advisor = machine.advisor(tmp_path)
    advisor.run(machine.timed(row_of))
    assert chosen(advisor) == BEST
    jobs = advisor.entries[BEST].jobs
    assert [job.unchecked for job in jobs if job.check] == [UNFINISHED[status]]
    assert all(job.figure is not None for job in jobs if not job.check)


def test_a_comparison_that_its_share_ended_is_made_again_with_a_larger_budget(tmp_path: Path):
    machine = Machine()

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        if not request.check:
            return row
        seconds, source = min((200.0, "it ended"), (request.timeout_s, BUDGET_SHARE))
        machine.now_s += seconds
        if source == BUDGET_SHARE:
            return replace(row, status="timeout", error=f"stopped after {seconds:g} s ({source})")
        return replace(row, check_passed=True)

    advisor = machine.advisor(tmp_path, budget_s=1200)
    advisor.run(machine.timed(row_of))
    assert [job.unchecked for job in advisor.entries[BEST].jobs if job.check] == [UNFINISHED["timeout"]]
    advisor = machine.advisor(tmp_path, budget_s=7200)
    advisor.run(machine.timed(row_of))
    checked = [job for job in advisor.entries[BEST].jobs if job.check]
    assert [job.figure is not None for job in checked] == [False, True]
    assert chosen(advisor) == BEST


def test_a_combination_whose_batch_is_too_large_is_tried_with_a_smaller_one(tmp_path: Path):
    """CUDA graphs hold memory of their own: the largest batch of mode default does not fit in the modes with them."""
    machine = Machine()

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        is_too_much = "compile.mode=default" not in request.overrides and row.batch_size > 256
        return replace(row, status="oom", error="out of memory") if is_too_much else row

    goal = Goal(memory_gib=40, batch_size=64)
    advisor = machine.advisor(tmp_path, budget_s=36000, factors=[*FACTORS, SIZE], goal=goal)
    advisor.run(machine.timed(row_of))
    again = machine.advisor(tmp_path, budget_s=36000, factors=[*FACTORS, SIZE], goal=goal)
    assert again.next_turn() is None
    assert chosen(again) == chosen(advisor)
    assert advisor.sizes.fits_by_size(advisor.entries.values())[640]
    assert chosen(advisor) == "compile.mode=reduce-overhead trainer.channels_last=true data.batch_size=256"


def test_a_combination_that_fits_without_its_comparison_keeps_its_batch(tmp_path: Path):
    machine = Machine()

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        return replace(row, status="oom", error="out of memory") if request.check else row

    goal = Goal(memory_gib=40, batch_size=64)
    advisor = machine.advisor(tmp_path, budget_s=36000, factors=[*FACTORS, SIZE], goal=goal)
    advisor.run(machine.timed(row_of))
    combined = [name for name in advisor.entries if "channels_last" in name and "batch_size" in name]
    assert combined
    assert all(name.endswith("data.batch_size=640") for name in combined)


def test_the_same_graphs_cost_the_same_whichever_setting_compiled_them_first(tmp_path: Path):
    """The optimizer is not compiled, so the second of the two finds the graphs of the first in the cache."""
    foreach = "optimizer.foreach=true"
    machine = Machine(step_ms={"compile.mode=eager": 20.0, "compile.mode=default": 10.0})
    factors = [Factor("compile.mode", {"default": FactorValue()}), Factor("optimizer.foreach", {"true": FactorValue()})]

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        return replace(row, compile_time_s=min(row.compile_time_s, 2.0)) if foreach in request.overrides else row

    begins = BEGINS | {"optimizer.foreach": "null"}
    budget = Budget(3600, 0.0, now=lambda: machine.now_s)
    goal = Goal(num_steps=5000, batch_size=64)
    advisor = Advisor(Space(factors, begins), goal, budget, Ledger(tmp_path, IDENTITY))
    advisor.run(machine.timed(row_of))
    arms = [advisor.entries[name].arm for name in ("compile.mode=default", f"compile.mode=default {foreach}")]
    assert arms[0].cost == arms[1].cost == 25.0
    assert advisor.race.gain(*arms).value == pytest.approx(1.0, rel=0.01)


def test_a_larger_budget_takes_up_what_the_share_of_a_smaller_one_ended(tmp_path: Path):
    machine = Machine(compile_s={"compile.mode=default": 3.0, "compile.mode=reduce-overhead": 100.0})

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        return replace(row, cache_found="cold")  # though default had its graphs half compiled

    for budget_s in (300.0, 7200.0):
        advisor = machine.advisor(tmp_path, budget_s=budget_s, factors=FACTORS[:1])
        advisor.run(machine.timed(row_of))
    ended, *later = advisor.entries["compile.mode=reduce-overhead"].jobs
    assert ended.status == "timeout"
    assert later[0].status == "ok"


def test_jobs_beside_another_process_put_a_setting_out_in_a_row_alone(tmp_path: Path):
    machine = Machine()
    disturbed = (1, 3, 5, 7)

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        return replace(row, foreign_processes=1) if request.repeat in disturbed else row

    advisor = machine.advisor(tmp_path, budget_s=7200)
    advisor.run(machine.timed(row_of))
    assert chosen(advisor) == BEST


def test_memory_is_a_constraint(tmp_path: Path):
    machine = Machine(fails={"compile.mode=reduce-overhead": {"peak_device_bytes": 50 * GIB}})
    advisor = race(machine, tmp_path, budget_s=3600, goal=Goal(memory_gib=40, batch_size=64))
    assert advisor.entries["compile.mode=reduce-overhead"].arm.excluded == "takes 50.0 GiB of 40 GiB"
    assert "reduce-overhead" not in chosen(advisor)


def test_few_steps_do_not_pay_for_a_compile(tmp_path: Path):
    few = race(Machine(), tmp_path, budget_s=3600, goal=Goal(num_steps=1000, batch_size=64))
    assert chosen(few) == f"compile.mode=eager {FAST}"
    (tmp_path / "many").mkdir()
    many = race(Machine(), tmp_path / "many", budget_s=3600, goal=Goal(num_steps=10**7, batch_size=64))
    assert chosen(many) == BEST


def test_the_least_memory_wins_of_those_that_are_not_much_slower(tmp_path: Path):
    machine = Machine(fails={"compile.mode=reduce-overhead": {"peak_device_bytes": 2 * GIB}})
    machine.step_ms["compile.mode=max-autotune"] = 9.0
    advisor = race(machine, tmp_path, budget_s=3600, goal=Goal(minimize="memory", slower_frac=0.3, batch_size=64))
    assert chosen(advisor) == BEST


def test_the_largest_batch_that_fits_is_found_and_raced(tmp_path: Path):
    machine = Machine()
    advisor = race(machine, tmp_path, budget_s=7200, factors=[*FACTORS, SIZE], goal=Goal(memory_gib=40, batch_size=64))
    sizes = [name for name in advisor.entries if name.startswith("compile.mode=default data.batch_size=")]
    assert "compile.mode=default data.batch_size=512" in sizes
    assert advisor.entries["compile.mode=default data.batch_size=1024"].arm.excluded == "takes 64.0 GiB of 40 GiB"
    assert "data.batch_size=" in chosen(advisor)
    assert max(size for size, fits in advisor.sizes.fits_by_size(advisor.entries.values()).items() if fits) == 640


def test_a_batch_that_does_not_fit_at_first_is_halved(tmp_path: Path):
    no_memory = {"status": "oom", "error": "oom: no memory"}
    modes = ("eager", "default", "reduce-overhead", "max-autotune")
    machine = Machine(fails={f"compile.mode={mode}": no_memory for mode in modes})
    for size in (8, 16, 24, 32, 48):
        machine.fails[f"data.batch_size={size}"] = {} if size < 32 else no_memory
    factors = [FACTORS[0], SIZE]
    advisor = race(machine, tmp_path, budget_s=7200, factors=factors, goal=Goal(batch_size=64))
    assert advisor.sizes.fits_by_size(advisor.entries.values()) == {64: False, 32: False, 16: True, 24: True}
    assert chosen(advisor) == "compile.mode=reduce-overhead data.batch_size=24"


def test_a_batch_whose_job_hangs_is_not_too_large(tmp_path: Path):
    machine = Machine(hangs=("data.batch_size=128",))
    advisor = race(machine, tmp_path, budget_s=7200, factors=[*FACTORS, SIZE], goal=Goal(batch_size=64))
    assert advisor.sizes.fits_by_size(advisor.entries.values()) == {64: True}


def test_one_job_beside_another_process_does_not_cancel_the_combinations(tmp_path: Path):
    machine = Machine()

    def row_of(request):
        row = machine.row(request)
        is_first = [job.name for job in machine.jobs].count(request.name) == 1
        if is_first and request.name in ("compile.mode=default", f"compile.mode=default {FAST}"):
            row = replace(row, foreign_processes=1)
        return row

    advisor = machine.advisor(tmp_path, budget_s=3600)
    advisor.run(machine.timed(row_of))
    assert chosen(advisor) == BEST


def test_settings_that_contradict_each_other_take_no_place_of_a_combination(tmp_path: Path):
    factors = [*FACTORS]
    for number in range(3):
        factors.append(Factor(f"optimizer.own{number}", {"true": FactorValue()}))
    machine = Machine()
    begins = dict(BEGINS)
    for number in range(3):
        begins[f"optimizer.own{number}"] = "false"
        machine.step_ms[f"optimizer.own{number}=true"] = 0.95

    def complaint(overrides):
        return "no" if sum("optimizer.own" in override for override in overrides) > 1 else None

    ledger = Ledger(tmp_path, IDENTITY)
    budget = Budget(7200, 0.0, now=lambda: machine.now_s)
    advisor = Advisor(Space(factors, begins), Goal(batch_size=64), budget, ledger, complaint)
    advisor.run(machine.measure)
    screened = {settings.overrides for settings in advisor.space.screening()}
    crossed = [entry for entry in advisor.entries.values() if entry.settings.overrides not in screened]
    assert sum(entry.arm.excluded is None for entry in crossed) == MOST_CROSSED


def test_a_job_beside_another_process_is_repeated_and_given_up_in_the_end(tmp_path: Path):
    machine = Machine(fails={"compile.mode=reduce-overhead": {"foreign_processes": 1}})
    advisor = race(machine, tmp_path, budget_s=3600)
    arm = advisor.entries["compile.mode=reduce-overhead"].arm
    assert [job.name for job in machine.jobs].count(arm.name) == 3
    assert arm.excluded.endswith(", 3 times")


@pytest.mark.parametrize("num_jobs", range(0, 15, 3))
def test_a_race_that_was_stopped_goes_on_to_the_same_choice(num_jobs: int, tmp_path: Path):
    whole = Machine()
    (tmp_path / "whole").mkdir()
    race(whole, tmp_path / "whole", budget_s=3600)
    machine = Machine()

    def row_of(request):
        if len(machine.jobs) == num_jobs:
            raise KeyboardInterrupt
        return machine.row(request)

    with pytest.raises(KeyboardInterrupt):
        machine.advisor(tmp_path, budget_s=3600).run(machine.timed(row_of))
    advisor = race(machine, tmp_path, budget_s=3600)
    assert [job.name for job in machine.jobs] == [job.name for job in whole.jobs]
    assert [job.repeat for job in machine.jobs] == [job.repeat for job in whole.jobs]
    assert chosen(advisor) == BEST


@pytest.mark.parametrize("num_jobs", [0, 3])
def test_the_time_of_a_job_that_was_broken_off_counts_once(num_jobs: int, tmp_path: Path):
    machine = Machine()

    def row_of(request):
        if len(machine.jobs) == num_jobs:
            machine.now_s += 50
            raise KeyboardInterrupt
        return machine.row(request)

    with pytest.raises(KeyboardInterrupt):
        machine.advisor(tmp_path, budget_s=600).run(machine.timed(row_of))
    for _ in range(2):
        resumed = machine.advisor(tmp_path, budget_s=600)
        assert resumed.budget.used_s == pytest.approx(machine.now_s)
    resumed.run(machine.measure)
    assert machine.now_s <= 600


KILLED = """
import os, signal, sys, time
from pathlib import Path
from tests.tuning.machine import BEGINS, FACTORS, IDENTITY
from trainkit.results.ledger import TIME_FILE, Ledger
from trainkit.tuning.advisor import Advisor
from trainkit.tuning.budget import Budget
from trainkit.tuning.goal import Goal
from trainkit.tuning.space import Space

def measure(request):
    note = Path(sys.argv[1], TIME_FILE)
    while not note.exists() or float(note.read_text()) <= 101:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)

Advisor(Space(FACTORS, BEGINS), Goal(), Budget(600, 100.0), Ledger(Path(sys.argv[1]), IDENTITY)).run(measure)
"""


def test_a_race_that_is_killed_while_it_measures_leaves_its_time(tmp_path: Path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    assert Machine().advisor(tmp_path).budget.used_s > 101


def test_a_row_that_was_there_already_has_the_time_of_its_job(tmp_path: Path):
    machine = Machine(compile_s={"compile.mode=default": 60.0})

    def row_of(request):
        earlier_s = machine.now_s
        row = machine.row(request)
        if request.name == "compile.mode=default":
            machine.now_s = earlier_s + 0.002
        return replace(row, compile_startup_s=2.0, steps_time_s=row.compile_time_s + 5.0)

    advisor = machine.advisor(tmp_path, budget_s=3600)
    advisor.run(machine.timed(row_of))
    first = advisor.entries["compile.mode=default"].jobs[0]
    assert first.wall_s == 67.0
    assert advisor.budget.used_s == machine.now_s


def test_the_second_time_nothing_is_measured_anew(tmp_path: Path):
    machine = Machine()
    race(machine, tmp_path, budget_s=400)
    num_jobs = len(machine.jobs)
    advisor = race(machine, tmp_path, budget_s=400)
    assert len(machine.jobs) == num_jobs
    assert chosen(advisor) == BEST


def test_a_decided_race_runs_no_further_job_when_it_is_started_again(tmp_path: Path):
    """All values gain something, so there are more combinations than a race crosses."""
    factors = [*FACTORS]
    machine = Machine()
    for number in range(3):
        factors.append(Factor(f"trainer.own{number}", {"true": FactorValue()}))
        machine.step_ms[f"trainer.own{number}=true"] = 0.95
    begins = BEGINS | {f"trainer.own{number}": "false" for number in range(3)}
    num_jobs = []
    for _ in range(2):
        ledger = Ledger(tmp_path, IDENTITY)
        budget = Budget(36000, ledger.used_s, now=lambda: machine.now_s)
        advisor = Advisor(Space(factors, begins), Goal(batch_size=64), budget, ledger)
        advisor.run(machine.measure)
        num_jobs.append(len(machine.jobs))
    assert advisor.race.is_confirmed(advisor.race.standing())
    assert num_jobs[0] == num_jobs[1]


def test_a_larger_budget_goes_on_where_the_smaller_one_ended(tmp_path: Path):
    machine = Machine()
    race(machine, tmp_path, budget_s=400)
    num_jobs = len(machine.jobs)
    race(machine, tmp_path, budget_s=3600)
    assert "compile.mode=max-autotune" in [job.name for job in machine.jobs[num_jobs:]]
    first_jobs = {(job.name, job.repeat) for job in machine.jobs}
    assert len(first_jobs) == len(machine.jobs)


def test_a_narrower_race_counts_no_job_of_a_value_that_it_does_not_try(tmp_path: Path):
    machine = Machine()
    race(machine, tmp_path, budget_s=3600)
    narrower = machine.advisor(tmp_path, budget_s=3600, factors=FACTORS[:1])
    for entry in narrower.entries.values():
        assert {tuple(job.overrides) for job in entry.jobs} == {entry.settings.overrides}


def test_a_batch_size_that_predicts_worse_fits_all_the_same(tmp_path: Path):
    goal = Goal(memory_gib=40, batch_size=64)
    advisor = race(Machine(), tmp_path, budget_s=7200, factors=[*FACTORS, SIZE], goal=goal)
    advisor.entries["compile.mode=default data.batch_size=128"].arm.excluded = "accuracy 0.1 is worse than 0.9 at first"
    assert advisor.sizes.fits_by_size(advisor.entries.values()) == {
        64: True,
        128: True,
        256: True,
        512: True,
        1024: False,
        768: False,
        640: True,
    }


def test_calls_are_judged_by_their_99th_percentile(tmp_path: Path):
    machine = Machine(fails={"compile.mode=reduce-overhead": {"step_time_ms_p99": 100.0}})
    machine.fails["compile.mode=max-autotune"] = {"step_time_ms_p99": 90.0}
    advisor = race(machine, tmp_path, budget_s=3600, goal=Goal(kind="forward"))
    assert chosen(advisor) == f"compile.mode=default {FAST}"


def test_accuracy_is_a_constraint_where_the_jobs_validate(tmp_path: Path):
    fields = {"num_val_targets": 1000}
    accuracies = {"compile.mode=eager": 0.90, "compile.mode=default": 0.905, "compile.mode=reduce-overhead": 0.80}
    machine = Machine(fails={name: fields | {"val_accuracy": value} for name, value in accuracies.items()})
    machine.fails["compile.mode=max-autotune"] = fields | {"val_accuracy": 0.99}
    advisor = race(machine, tmp_path, budget_s=3600, factors=FACTORS[:1])
    reasons = {name: entry.arm.excluded for name, entry in advisor.entries.items()}
    assert reasons["compile.mode=reduce-overhead"] == "accuracy 0.8000 is worse than 0.9000 at first"
    assert reasons["compile.mode=max-autotune"] is None
    seeds = [job.repeat for job in machine.jobs if job.name == "compile.mode=reduce-overhead"]
    assert seeds == [0, 1, 2]  # one seed proves nothing
    assert [job.repeat for job in machine.jobs if job.name == "compile.mode=eager"] == [0, 1, 2]
    resumed = machine.advisor(tmp_path, budget_s=3600, factors=FACTORS[:1])
    assert {name: entry.arm.excluded for name, entry in resumed.entries.items()} == reasons
    assert "max-autotune" in chosen(advisor)
    with_interval, excluded_in = rounds_in_which("reduce-overhead", advisor)
    third = [number for number, shown in enumerate(advisor.rounds) if "reduce-overhead" in shown.measured][2]
    assert excluded_in == advisor.rounds[third].name
    assert with_interval == [shown.name for shown in advisor.rounds[:third]]
    assert resumed.rounds == advisor.rounds


def rounds_in_which(label: str, advisor: Advisor) -> tuple[list[str], str | None]:
    """The rounds in which a setting has an interval, and the first in which it is excluded."""
    with_interval = [shown.name for shown in advisor.rounds if label in shown.intervals]
    excluded = [shown.name for shown in advisor.rounds if label in shown.excluded]
    return with_interval, next(iter(excluded), None)


def test_a_setting_is_excluded_in_the_round_in_which_the_race_excluded_it(tmp_path: Path):
    machine = Machine(
        fails={
            "compile.mode=reduce-overhead": {"foreign_processes": 1},
            "compile.mode=max-autotune": {"check_passed": False, "check_reason": "losses differ"},
            "trainer.channels_last=true": {"status": "oom", "error": "oom: no memory"},
        }
    )
    advisor = race(machine, tmp_path, budget_s=3600)
    assert rounds_in_which("reduce-overhead", advisor) == ([], "round 3")
    assert [shown.name for shown in advisor.rounds] == ["round 1", "round 2", "round 3", "round 4", "final"]
    assert rounds_in_which("max-autotune", advisor) == (["round 3", "round 4"], "final")  # whose jobs are checked
    layout = "default, trainer.channels_last=true"
    (own,) = [shown.name for shown in advisor.rounds if layout in shown.measured]
    assert rounds_in_which(layout, advisor) == ([], own)


def test_a_round_has_one_job_of_an_arm_whatever_is_tried_between_repeats(tmp_path: Path):
    advisor = race(Machine(), tmp_path, budget_s=300)
    *rounds, final = advisor.rounds
    assert [shown.name for shown in rounds] == [f"round {number + 1}" for number in range(len(rounds))]
    assert final.name == "final"
    assert all(len(set(shown.measured)) == len(shown.measured) for shown in rounds)
    assert sum(len(shown.measured) for shown in advisor.rounds) == len(advisor.ledger.measurements)


def test_a_choice_that_is_as_good_as_a_faster_leader_is_not_out(tmp_path: Path):
    """The mode `default` is known to be faster than eager, by less than matters."""
    machine = Machine(step_ms={"compile.mode=default": 0.99}, spread=0.0005)
    advisor = race(machine, tmp_path, budget_s=3600, factors=[Factor("compile.mode", {"default": FactorValue()})])
    standing = advisor.race.standing()
    assert standing.choice is advisor.race.arms[0]
    low, high = standing.times_as_good["compile.mode=eager"]
    assert 0.98 < low < high < 1
    assert advisor.rounds[-1].leader == "default"
    assert advisor.rounds[-1].eliminated == ()


def test_a_round_has_intervals_that_close_and_the_settings_that_they_put_out(tmp_path: Path):
    advisor = race(Machine(), tmp_path, budget_s=3600, factors=FACTORS[:1])
    assert [shown.name for shown in advisor.rounds][:2] == ["round 1", "round 2"]
    assert advisor.rounds[-1].name == "final"
    ends = [shown.intervals["reduce-overhead"] for shown in advisor.rounds[1:3]]
    assert ends[0][1] - ends[0][0] > ends[1][1] - ends[1][0]
    assert advisor.rounds[0].eliminated == ()
    assert "eager" in advisor.rounds[-1].eliminated
    assert advisor.rounds[-1].leader in ("reduce-overhead", "max-autotune")


def test_without_the_mode_default_values_are_combined_with_the_fastest_that_runs(tmp_path: Path):
    machine = Machine(fails={"compile.mode=default": {"status": "compile_error", "error": "no kernel"}})
    advisor = race(machine, tmp_path, budget_s=1200)
    assert chosen(advisor) == BEST


CHECKPOINTED = "trainer.activation_checkpointing=true"


@pytest.mark.parametrize(("memory_gib", "is_tried"), [(None, False), (40, False), (3.9, True)])
def test_blocks_are_checkpointed_only_once_something_takes_too_much_memory(
    memory_gib: float | None, is_tried: bool, tmp_path: Path
):
    """Each setting takes 4 GiB."""
    machine = Machine()
    factors = [Factor("trainer.activation_checkpointing", {"true": FactorValue(saves_memory=True)}), *FACTORS]
    advisor = race(machine, tmp_path, factors=factors, goal=Goal(batch_size=64, memory_gib=memory_gib))
    assert any(CHECKPOINTED in job.name for job in machine.jobs) is is_tried
    _, refused = unmeasured(advisor)
    assert (LeftOut(f"{CHECKPOINTED}, default", "nothing takes too much memory") in refused) is not is_tried


def test_a_comparison_that_takes_too_much_memory_makes_none_short(tmp_path: Path):
    machine = Machine()
    factors = [Factor("trainer.activation_checkpointing", {"true": FactorValue(saves_memory=True)}), *FACTORS]
    advisor = machine.advisor(tmp_path, factors=factors)

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        return replace(row, status="oom", error="oom: no memory") if request.check else row

    advisor.run(machine.timed(row_of))
    assert any(job.check for job in machine.jobs)
    assert not any(CHECKPOINTED in job.name for job in machine.jobs)


def test_where_mode_default_does_not_compile_the_largest_batch_is_found_in_another_mode(tmp_path: Path):
    machine = Machine(fails={"compile.mode=default": {"status": "compile_error", "error": "no"}})
    machine.step_ms["compile.mode=max-autotune"] = 30.0
    goal = Goal(memory_gib=40, batch_size=64)
    advisor = race(machine, tmp_path, budget_s=36000, factors=[*FACTORS, SIZE], goal=goal)
    assert advisor.entries[f"{CUDA_GRAPHS} data.batch_size=640"].first_figure is not None
    assert advisor.entries[f"{CUDA_GRAPHS} data.batch_size=1024"].arm.excluded == "takes 64.0 GiB of 40 GiB"
    assert "data.batch_size=640" in chosen(advisor)
    assert max(advisor.sizes.fitting(advisor.entries.values())) == 640
    assert advisor.sizes.space.reference_mode == "reduce-overhead"


@pytest.mark.parametrize(("eager_fits", "saves_memory"), [(False, False), (False, True), (True, True)])
def test_what_fits_is_tried_with_what_makes_it_fit(eager_fits: bool, saves_memory: bool, tmp_path: Path):
    """Without checkpointing nothing compiled fits."""
    machine, fits = Machine(), "trainer.activation_checkpointing=true"
    factors = [Factor("trainer.activation_checkpointing", {"true": FactorValue(saves_memory=saves_memory)}), *FACTORS]
    begins = BEGINS | {"trainer.activation_checkpointing": "false"}

    def row_of(request: JobRequest) -> Row:
        row = machine.row(request)
        if fits in request.overrides or (eager_fits and "compile.mode=eager" in request.overrides):
            return row
        return replace(row, status="oom", error="CUDA out of memory")

    budget = Budget(2400, 0.0, now=lambda: machine.now_s)
    advisor = Advisor(Space(factors, begins), Goal(batch_size=64), budget, Ledger(tmp_path, IDENTITY))
    advisor.run(machine.timed(row_of))
    assert set(chosen(advisor).split()) == {fits, *BEST.split()}
