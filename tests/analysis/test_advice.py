"""What is said of a race, told from its jobs."""

import math

import numpy as np
import pytest

from trainkit.analysis.advice import arm_label, effects_of, tried_arms
from trainkit.analysis.arms import Arm, Turn
from trainkit.analysis.race import Race, Rules
from trainkit.results.ledger import Measurement
from trainkit.stats import ratio

EAGER, DEFAULT, NET = ["compile.mode=eager"], ["compile.mode=default"], ["compile.mode=default", "compile.scope=net"]


def job(overrides: list[str], figure: float | None, repeat: int = 0, **fields) -> Measurement:
    values = {"is_final": False, "run_id": "r", "status": "ok", "wall_s": 1.0, "used_s": 1.0} | fields
    return Measurement(overrides=overrides, repeat=repeat, figure=figure, **values)


JOBS = [
    job(EAGER, 2.0), job(DEFAULT, 1.0, compile_s=9.0, peak_bytes=5), job(NET, None, reason="oom: no", excludes=True),
    job(EAGER, 2.004, 1), job(DEFAULT, 1.002, 1, compile_s=1.0, peak_bytes=7),
    job(EAGER, 1.998, 2), job(DEFAULT, 0.999, 2),
    *[job(DEFAULT, 1.001, repeat) for repeat in (3, 4, 5)],
    job(DEFAULT, 1.001, 6, is_final=True), job(EAGER, 2.0, 3, is_final=True),
    job(DEFAULT, 1.0, 7, is_final=True), job(EAGER, 2.002, 4, is_final=True),
]  # fmt: skip


def raced() -> tuple[Race, dict[str, list[Measurement]]]:
    jobs: dict[str, list[Measurement]] = {}
    arms: dict[str, Arm] = {}
    for measured in JOBS:
        name = " ".join(measured.overrides)
        jobs.setdefault(name, []).append(measured)
        arm = arms.setdefault(name, Arm(name))
        if measured.figure is None:
            arm.excluded = measured.reason
        else:
            Turn(arm, measured.is_final).record(measured.figure)
    return Race(list(arms.values()), Rules()), jobs


def test_each_arm_has_its_outcome_its_gain_and_its_costs():
    eager, default, net = tried_arms(*raced())
    assert (eager.label, eager.outcome, eager.gain) == ("eager", "slower", None)
    assert (default.label, default.outcome) == ("default", "chosen")
    assert default.gain.value == pytest.approx(2.0, rel=0.01)
    assert default.gain.low < 2 < default.gain.high
    assert (default.compile_s, default.peak_bytes) == (9.0, 7)
    assert (net.label, net.outcome, net.reason, net.gain) == ("default, scope=net", "excluded", "oom: no", None)


def test_a_winner_without_its_last_jobs_leads_and_is_not_chosen():
    race, jobs = raced()
    race.arms[0].final_figures.pop()
    assert [tried.outcome for tried in tried_arms(race, jobs)] == ["slower", "leading", "excluded"]


def test_a_smaller_arm_that_may_be_as_good_is_told_from_one_that_is_slower():
    """With the least memory as the goal, two arms take less than the choice. What is known of one of them is too little
    to say whether it is more than 2 % slower."""
    arms = [
        Arm("eager", 4, [1.0, 1.001, 0.999, 1.0, 1.001, 1.0], [1.0, 1.0]),
        Arm("slow", 1, [1.2, 1.201]),
        Arm("noisy", 1, [1.019, 1.022, 1.018, 1.021]),
    ]
    jobs = {arm.name: [job([f"compile.mode={arm.name}"], figure) for figure in arm.all_figures] for arm in arms}
    tried = tried_arms(Race(arms, Rules(least_cost=True)), jobs)
    assert [(arm.label, arm.outcome, arm.may_be_equal) for arm in tried] == [
        ("eager", "leading", False),
        ("slow", "slower", False),
        ("noisy", "slower", True),
    ]


def test_the_choice_of_an_undecided_race_leads_and_is_not_chosen():
    arms = [Arm(name, figures=[figure]) for name, figure in (("eager", 2.0), ("default", 1.0))]
    jobs = {"eager": JOBS[:1], "default": JOBS[1:2]}
    outcomes = {tried.label: tried.outcome for tried in tried_arms(Race(arms, Rules()), jobs)}
    assert outcomes == {"eager": "open", "default": "leading"}


def simulated(seed: int, most_turns: int) -> tuple[Race, dict[str, list[Measurement]]]:
    """A race that a budget of so many jobs may end: four settings within some percent, that scatter by up to 2 %."""
    chance = np.random.default_rng(seed)
    arms = [Arm(f"setting={number}", cost=float(number)) for number in range(4)]
    means = {arm.name: math.exp(chance.normal(0, 0.03)) for arm in arms}
    spread = chance.choice([0.002, 0.01, 0.02])
    race = Race(arms, Rules())
    jobs: dict[str, list[Measurement]] = {arm.name: [] for arm in arms}
    for _ in range(most_turns):
        turn = race.next_turn()
        if turn is None:
            break
        figure = means[turn.arm.name] * math.exp(chance.normal(0, spread))
        turn.record(figure)
        jobs[turn.arm.name].append(job([turn.arm.name], figure, is_final=turn.is_final))
    return race, jobs


@pytest.mark.parametrize(
    ("most_turns", "expected"),
    [(16, {"leading", "open", "slower"}), (1000, {"chosen", "equal", "no_better", "slower"})],
)
def test_an_outcome_follows_from_the_interval_beside_it(most_turns: int, expected: set[str]):
    outcomes = set()
    for seed in range(60):
        race, jobs = simulated(seed, most_turns)
        within_tolerance = 1 / (1 + race.rules.tolerance)
        is_confirmed = race.is_confirmed(race.standing())
        for tried in tried_arms(race, jobs):
            low, high = tried.interval
            if tried.outcome in ("chosen", "equal"):
                assert low > within_tolerance
            else:
                assert (tried.outcome == "slower") == (high < 1) or tried.outcome == "leading"
            assert tried.outcome != ("open" if is_confirmed else "no_better")
            outcomes.add(tried.outcome)
    assert outcomes >= expected


def test_the_gain_of_a_leader_that_is_not_confirmed_has_the_interval_of_the_race():
    arms = [
        Arm("compile.mode=eager", figures=[1.0, 1.01, 1.03]),
        Arm("compile.mode=default", figures=[0.96, 0.94, 0.97]),
    ]
    jobs = {arm.name: [job([arm.name], figure) for figure in arm.figures] for arm in arms}
    alone = ratio(arms[0].figures, arms[1].figures)
    eager, default = tried_arms(Race(arms, Rules()), jobs)
    assert (default.outcome, eager.outcome) == ("leading", "open")
    assert alone.low > 1  # as if it were sure that it is better
    assert default.gain.value == pytest.approx(alone.value)
    assert (default.gain.low, default.gain.high) == pytest.approx((1 / eager.interval[1], 1 / eager.interval[0]))
    assert default.gain.low < 1
    for arm in arms:
        del arm.figures[1:]
    (_, default) = tried_arms(Race(arms, Rules()), jobs)
    assert (default.gain.value, default.gain.low) == (pytest.approx(1 / 0.96), None)


def test_the_effect_of_a_value_is_the_ratio_of_the_arms_with_and_without_it():
    tried = tried_arms(*raced())
    pairs = [("compile.mode=default", tuple(DEFAULT), tuple(EAGER)), ("compile.scope=net", tuple(NET), tuple(DEFAULT))]
    (effect,) = effects_of(pairs, tried)
    assert effect.value == "default"
    assert effect.gain.value == pytest.approx(2.0, rel=0.01)


def test_the_settings_as_they_are_have_a_label():
    assert arm_label([]) == "the settings as they are"
