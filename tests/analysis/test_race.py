"""Races over figures that are made up: who wins, who leaves, whose turn it is."""

import math

import numpy as np
import pytest

from trainkit.analysis.arms import Arm, slower_peak
from trainkit.analysis.race import LEAST_FIGURES, Race, Rules


def noisy(means: dict[str, float], spread: float, seed: int = 0):
    """(arm) -> a figure of it, normal on the log scale."""
    chance = np.random.default_rng(seed)
    return lambda arm: means[arm.name] * math.exp(chance.normal(0, spread))


def run(race: Race, draw) -> list[tuple[str, bool]]:
    """The turns of a race up to its end."""
    turns = []
    while (turn := race.next_turn()) is not None:
        turn.record(draw(turn.arm))
        turns.append((turn.arm.name, turn.is_final))
    return turns


def test_the_best_arm_wins_and_poor_arms_are_measured_once():
    means = {"eager": 1.0, "default": 0.8, "fused": 0.6, "slow": 1.5, "slower": 2.0}
    race = Race([Arm(name) for name in means])
    turns = run(race, noisy(means, 0.005))
    standing = race.standing()
    assert standing.is_decided
    assert standing.choice.name == "fused"
    assert {arm.name for arm in standing.eliminated} == {"eager", "default", "slow", "slower"}
    assert standing.most_gain <= Rules().tolerance
    counts = [name for name, _ in turns]
    assert counts.count("slower") == counts.count("slow") == 1
    low, high = standing.intervals["eager"]
    assert low < 1 / 0.6 < high


def test_every_arm_is_measured_before_any_is_measured_again_and_good_ones_come_first():
    means = {"a": 1.3, "b": 1.0, "c": 1.2, "d": 1.1}
    race = Race([Arm(name) for name in means])
    turns = run(race, lambda arm: means[arm.name])
    assert turns[:4] == [("a", False), ("b", False), ("c", False), ("d", False)]
    assert turns[4:6] == [("b", False), ("d", False)]


def test_the_last_two_are_measured_side_by_side_again():
    means = {"a": 1.0, "b": 1.1, "c": 1.5}
    race = Race([Arm(name) for name in means])
    turns = run(race, noisy(means, 0.002))
    assert [turn for turn in turns if turn[1]] == [("a", True), ("b", True)] * 2
    assert turns[-1][1]


def test_equally_good_arms_go_to_the_cheapest():
    means = {"eager": 1.0, "default": 0.999, "autotuned": 0.998}
    arms = [Arm("eager", cost=0), Arm("default", cost=30), Arm("autotuned", cost=300)]
    race = Race(arms)
    run(race, noisy(means, 0.001))
    standing = race.standing()
    assert {arm.name for arm in standing.winners} == set(means)
    assert standing.choice.name == "eager"


@pytest.mark.parametrize(("least_cost", "chosen"), [(False, "large"), (True, "small")])
def test_where_the_cost_is_the_goal_a_race_goes_on_for_cheaper_arms(least_cost: bool, chosen: str):
    """The small arm is 20 % slower, and eliminated as the best after few figures."""
    means = {"large": 1.0, "small": 1.2, "smallest": 1.6}
    costs = {"large": 10.0, "small": 5.0, "smallest": 1.0}
    race = Race([Arm(name, costs[name]) for name in means], Rules(tolerance=0.3, least_cost=least_cost))
    draw = noisy(means, 0.01)
    race.arms[0].figures = [draw(race.arms[0]) for _ in range(6)]
    race.arms[2].figures = [draw(race.arms[2]) for _ in range(6)]
    race.arms[1].figures = [1.2, 1.45]
    while not race.is_confirmed(race.standing()):
        turn = race.next_turn()
        turn.record(draw(turn.arm))
    assert race.standing().choice.name == chosen


def test_arms_that_scatter_too_much_end_without_a_winner():
    means = dict.fromkeys("abcd", 1.0)
    race = Race([Arm(name) for name in means])
    run(race, noisy(means, 0.1))
    standing = race.standing()
    assert not standing.is_decided
    assert standing.choice is standing.leader
    assert standing.most_gain > Rules().tolerance
    assert max(len(arm.figures) for arm in race.arms) == Rules().most_samples


def test_few_named_winners_are_worse_than_the_tolerance():
    """The means are such that chance often turns the best two around."""
    num_wrong = num_named = 0
    for seed in range(60):
        means = {str(number): 1 + 0.03 * number for number in range(6)}
        race = Race([Arm(name) for name in means])
        run(race, noisy(means, 0.01, seed))
        standing = race.standing()
        if standing.is_decided:
            num_named += 1
            num_wrong += means[standing.choice.name] > 1 + Rules().tolerance
    assert num_named >= 30
    assert num_wrong <= 0.05 * num_named


@pytest.mark.parametrize(
    ("figures", "peak"),
    [
        ([14.0, 22.9, 14.1, 23.0, 14.0], [22.9, 23.0]),
        ([14.0, 22.9, 14.1, 14.0], None),  # an outlier
        ([14.0, 14.3, 14.1, 14.4], None),  # too close to matter
        ([14.0, 16.0, 18.0, 20.0, 22.0], None),  # noise
        ([14.0, 22.9], None),
    ],
)
def test_two_peaks_are_told_from_noise(figures: list[float], peak: list[float] | None):
    assert slower_peak(figures) == (peak or sorted(figures))


def test_an_unstable_arm_is_judged_by_its_slower_value():
    jumping = Arm("jumping", figures=[0.8, 1.3, 0.801, 1.301])
    steady = Arm("steady", figures=[1.0, 1.001, 1.0])
    other = Arm("other", figures=[1.5, 1.501, 1.502])
    standing = Race([jumping, steady, other]).standing()
    assert standing.choice is steady
    assert standing.unstable == (jumping,)
    assert jumping in standing.eliminated


def test_an_unstable_arm_does_not_win():
    jumping = Arm("jumping", figures=[0.8, 0.9, 0.801, 0.901] * 2)
    steady = Arm("steady", figures=[1.0, 1.001, 1.0, 1.001] * 2)
    other = Arm("other", figures=[1.5, 1.501, 1.502])
    standing = Race([jumping, steady, other]).standing()
    assert standing.unstable == (jumping,)
    assert standing.leader is standing.choice is jumping
    assert not standing.is_decided


def test_a_winner_gets_enough_figures_to_show_a_second_peak():
    """All three agree within 0.1 %, so the race is decided after few figures."""
    means = {"a": 1.0, "b": 1.1, "c": 1.5}
    race = Race([Arm(name) for name in means])
    draw = noisy(means, 0.001)
    first_decided = 0
    while (turn := race.next_turn()) is not None:
        turn.record(draw(turn.arm))
        is_compared = all(arm.figures for arm in race.arms)
        if is_compared and first_decided == 0 and race.standing().is_decided:
            first_decided = len(race.arms[0].all_figures)
            assert not race.is_confirmed(race.standing())
    assert race.is_confirmed(race.standing())
    assert 0 < first_decided < LEAST_FIGURES
    assert [len(arm.all_figures) >= LEAST_FIGURES for arm in race.arms] == [True, False, False]


def test_a_clear_lead_needs_no_figures_that_would_show_a_second_peak():
    means = {"a": 2.0, "b": 1.0, "c": 2.5}
    race = Race([Arm(name) for name in means])
    run(race, noisy(means, 0.005))
    assert race.is_confirmed(race.standing())
    assert len(race.arms[1].all_figures) < LEAST_FIGURES


def test_the_base_has_two_figures_in_the_end():
    means = {"base": 2.0, "a": 1.0, "b": 1.5, "c": 3.0}
    race = Race([Arm(name) for name in means])
    run(race, noisy(means, 0.001))
    assert [len(arm.all_figures) >= 2 for arm in race.arms] == [True, True, True, False]


def test_an_arm_is_alive_again_when_the_one_that_eliminated_it_turns_out_unstable():
    jumping = Arm("jumping", figures=[0.8, 0.801])
    steady = Arm("steady", figures=[1.0, 1.001, 1.0, 1.001])
    other = Arm("other", figures=[1.5, 1.501, 1.502])
    race = Race([jumping, steady, other])
    assert steady in race.standing().eliminated
    jumping.figures += [1.3, 1.301]
    assert race.standing().leader is steady
    assert steady in race.standing().alive


def test_an_excluded_arm_neither_runs_nor_wins():
    means = {"a": 0.5, "b": 1.0, "c": 1.2}
    race = Race([Arm(name) for name in means])
    race.arms[0].excluded = "out of memory"
    turns = run(race, noisy(means, 0.002))
    assert "a" not in [name for name, _ in turns]
    assert race.standing().choice.name == "b"


def test_a_winner_that_is_excluded_in_its_final_makes_room_for_the_next():
    means = {"a": 0.5, "b": 1.0, "c": 1.2}
    race = Race([Arm(name) for name in means])
    draw = noisy(means, 0.002)
    while (turn := race.next_turn()) is not None:
        if turn.is_final and turn.arm.name == "a":
            turn.arm.excluded = "wrong numbers"
        else:
            turn.record(draw(turn.arm))
    assert race.standing().choice.name == "b"
    assert len(race.arms[1].final_figures) == len(race.arms[2].final_figures) == 2


def test_without_any_arm_that_can_win_there_is_no_choice():
    race = Race([Arm("a", excluded="failed")])
    assert race.next_turn() is None
    assert race.standing().choice is None
    assert not race.standing().is_decided


def test_an_arm_that_the_budget_forbids_is_not_measured():
    means = {"a": 1.0, "b": 0.5}
    race = Race([Arm(name) for name in means])
    turn = race.next_turn(lambda turn: turn.arm.name == "a")
    assert turn.arm.name == "a"
    turn.record(1.0)
    assert race.next_turn(lambda turn: turn.arm.name != "b") is None  # nothing to compare with
    assert race.next_turn().arm.name == "b"


def test_the_gain_of_the_chosen_arm_comes_from_figures_that_did_not_choose_it():
    base = Arm("base", figures=[1.0, 1.01, 0.99])
    chosen = Arm("chosen", figures=[0.4], final_figures=[0.5, 0.502])
    gain = Race([base, chosen]).gain(chosen, base)
    assert gain.value == pytest.approx(2.0, rel=0.01)
    assert gain.low < 2 < gain.high
    chosen.final_figures.pop()  # one alone tells less than all
    assert Race([base, chosen]).gain(chosen, base).value == pytest.approx(5**0.5, rel=0.01)


def test_the_gain_of_an_arm_that_jumps_is_that_of_all_its_figures():
    base = Arm("base", figures=[2.0, 2.01, 1.99])
    jumping = Arm("jumping", figures=[1.0, 1.3, 1.001, 1.301], final_figures=[1.0, 1.001])
    assert jumping.is_unstable
    assert Race([base, jumping]).gain(jumping, base).value < 1.95


def test_a_lead_of_noisy_arms_names_no_winner_before_there_are_enough_figures():
    fast = Arm("fast", figures=[1.0, 1.05, 0.96, 1.02])
    slow = Arm("slow", figures=[1.2, 1.26, 1.14, 1.21])
    slower = Arm("slower", figures=[2.0, 2.1, 1.9, 2.02])
    race = Race([fast, slow, slower])
    standing = race.standing()
    assert {arm.name for arm in standing.eliminated} == {"slow", "slower"}
    assert not standing.is_decided
    slow.figures, kept = [10 * figure for figure in slow.figures], slow.figures
    assert race.standing().choice is fast  # a lead that scatter does not turn around
    slow.figures = kept
    assert race.next_turn().arm.name in ("fast", "slow")
    for arm in (fast, slow):
        arm.figures *= 2
    assert race.standing().choice is fast
    assert race.standing().is_decided


def test_the_last_two_get_more_figures_in_their_final_where_they_scatter():
    means = {"a": 1.0, "b": 1.2, "c": 2.0}
    race = Race([Arm(name) for name in means])
    run(race, noisy(means, 0.05))
    assert [len(arm.final_figures) for arm in race.arms] == [4, 4, 0]
