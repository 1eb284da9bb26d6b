"""What is said of a race, told from its jobs."""

import pytest

from trainkit.analysis.advice import arm_label, effects_of, tried_arms
from trainkit.analysis.arms import Arm, Turn
from trainkit.analysis.race import Race, Rules
from trainkit.results.ledger import Measurement

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


def test_the_choice_of_an_undecided_race_leads_and_is_not_chosen():
    arms = [Arm(name, figures=[figure]) for name, figure in (("eager", 2.0), ("default", 1.0))]
    jobs = {"eager": JOBS[:1], "default": JOBS[1:2]}
    outcomes = {tried.label: tried.outcome for tried in tried_arms(Race(arms, Rules()), jobs)}
    assert outcomes == {"eager": "open", "default": "leading"}


def test_the_effect_of_a_value_is_the_ratio_of_the_arms_with_and_without_it():
    tried = tried_arms(*raced())
    pairs = [("compile.mode=default", tuple(DEFAULT), tuple(EAGER)), ("compile.scope=net", tuple(NET), tuple(DEFAULT))]
    (effect,) = effects_of(pairs, tried)
    assert effect.value == "default"
    assert effect.gain.value == pytest.approx(2.0, rel=0.01)


def test_the_settings_as_they_are_have_a_label():
    assert arm_label([]) == "the settings as they are"
