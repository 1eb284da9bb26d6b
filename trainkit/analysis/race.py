"""A race: arms are measured again and again until one of them is known to be as good as the best.

A figure is positive, lower is better, and comes from a process of its own. Figures are compared on the log scale, so
differences are relative.

Two arms are compared by Welch's interval with moderated variances. An arm is eliminated when its interval lies above
the leader (Maron and Moore 1994, "Hoeffding races"; Even-Dar et al. 2006, successive elimination). The error is divided
by the number of comparisons with the best arm and by the number of looks at each of them (Bonferroni), so all intervals
of a race that concern the best arm hold together with the requested confidence.

That confidence is one over all races. Where figures scatter by many times the tolerance, few races name a winner, and
luck names many of these. So the winner's lead over the best of the others must also pass a test of its odds, and both
need LEAST_FIGURES, with NOISY_FINAL of them from the final, unless their interval is narrow or far from a tie.

All this assumes normal logs. An arm that jumps between two values cannot win, and few figures that agree do not tell
it from a steady one: so a winner gets LEAST_FIGURES before it is confirmed by the final, unless its lead is clear.
`benchmarks/race_replay.py` shows how all this holds for other distributions and for recorded rows.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainkit.analysis.arms import Arm, Turn
from trainkit.analysis.differences import MeanDifferences, differences
from trainkit.stats import CONFIDENCE, Ratio

BASE_FIGURES = 2  # of the first arm: one alone gives the gain no interval
LEAST_FIGURES = 8  # of a winner, and of the last two, where they scatter
NOISY_FINAL = 4  # figures of each of the last two in their final, where they scatter
CLEAR_LEAD = 10  # tolerances: neither scatter nor a slow value of some processes turns it around


@dataclass(frozen=True)
class Rules:
    """When a race ends. No arm is more than `tolerance` (relative) better than a winner. No arm gets more than
    `most_samples` figures before its final, and the last two get `final_samples` more, or NOISY_FINAL. `least_cost`: it
    does not end with a winner while a cheaper arm may be one, too."""

    tolerance: float = 0.02
    most_samples: int = 16
    final_samples: int = 2
    least_cost: bool = False
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class Standing:
    """The state of a race. Intervals are those of an arm's figure over the leader's.

    `leader` has the lowest mean of the arms that can win, None without any. `alive` may still be the best;
    `eliminated` are not; `unstable` may be either, and does not win. No arm is better than one of the `winners` by more
    than the tolerance; `possible` winners may turn out to be such. `choice` is the cheapest winner, or the leader while
    there is no winner. `most_gain` is the largest relative gain over the choice that any arm may still have.
    """

    leader: Arm | None = None
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    alive: tuple[Arm, ...] = ()
    eliminated: tuple[Arm, ...] = ()
    unstable: tuple[Arm, ...] = ()
    winners: tuple[Arm, ...] = ()
    possible: tuple[Arm, ...] = ()
    choice: Arm | None = None
    most_gain: float = math.inf

    @property
    def is_decided(self) -> bool:
        return bool(self.winners)

    @property
    def times_as_good(self) -> dict[str, tuple[float, float]]:
        """How many times as good as the leader each arm is: the interval of the leader's figure over its own."""
        return {name: (_inverse(high), _inverse(low)) for name, (low, high) in self.intervals.items()}


class Race:
    """The arms of a race, and whose turn it is. The first arm is the base, over which a gain is reported."""

    def __init__(self, arms: Sequence[Arm], rules: Rules | None = None):
        self.arms = list(arms)
        self.rules = rules or Rules()

    def standing(self) -> Standing:
        """The state of the race. A later figure may reverse it: an arm is alive again if the arm that eliminated it
        turns out to be unstable, and slower than it seemed."""
        able = [arm for arm in self.arms if arm.can_win]
        if not able:
            return Standing()
        compared = differences([arm.logs for arm in able], self._error_of_look(), self._log_tolerance)
        best_first = sorted(range(len(able)), key=lambda index: able[index].mean_log)
        leader_index = best_first[0]
        intervals, alive, eliminated, winners, possible = {}, [], [], [], []
        for index, arm in enumerate(able):
            low, high = compared.lows[index, leader_index], compared.highs[index, leader_index]
            intervals[arm.name] = (_exp(low), _exp(high))
            if low > 0:
                eliminated.append(arm)
            else:
                alive.append(arm)
            can_be_named = not arm.is_unstable and self._is_sure(index, compared)
            if can_be_named and self._is_likely(index, best_first, able, compared):
                winners.append(arm)
            elif not arm.is_unstable and compared.lows[index].max() <= self._log_tolerance:
                possible.append(arm)
        leader = able[leader_index]
        choice = min(winners, key=lambda arm: arm.cost, default=leader)
        return Standing(
            leader=leader,
            intervals=intervals,
            alive=tuple(alive),
            eliminated=tuple(eliminated),
            unstable=tuple(arm for arm in able if arm.is_unstable),
            winners=tuple(winners),
            possible=tuple(possible),
            choice=choice,
            most_gain=_exp(-compared.lows[:, able.index(choice)].min()) - 1,
        )

    def _is_sure(self, index: int, compared: MeanDifferences) -> bool:
        """Whether no other arm is better by more than the tolerance."""
        return bool(compared.lows[:, index].min() > -self._log_tolerance)

    def _is_likely(self, index: int, best_first: Sequence[int], arms: Sequence[Arm], compared: MeanDifferences) -> bool:
        """Whether an arm's lead over the best of the others is not luck."""
        rivals = [other for other in best_first if other != index]
        if not rivals:
            return True
        rival = rivals[0]
        if compared.likely_lows[rival, index] <= -self._log_tolerance:
            return False
        num_figures = min(len(arms[index].all_figures), len(arms[rival].all_figures))
        return num_figures >= LEAST_FIGURES or self._is_sharp(compared.lows[rival, index], compared.highs[rival, index])

    def _is_sharp(self, low: float, high: float) -> bool:
        """Whether the interval of a difference is narrow, or far from a tie."""
        is_narrow = high - low <= 2 * self._log_tolerance
        return bool(is_narrow or low > CLEAR_LEAD * self._log_tolerance or high < -CLEAR_LEAD * self._log_tolerance)

    def next_turn(self, may_run: Callable[[Turn], bool] = lambda turn: True) -> Turn | None:
        """The next arm to measure, None at the end of the race. `may_run` says whether a turn fits into the budget.

        Every arm is measured once. Then, of the arms that may still be the best, the one with the fewest figures comes
        first, and among equals the better one: rounds are interleaved, and poor arms wait until the scatter of the good
        ones is known. The final comes last.
        """
        for turn in self._turns():
            if may_run(turn):
                return turn
        return None

    def _turns(self) -> Iterator[Turn]:
        """The turns that the race may take next, in the order of their importance."""
        for arm in self.arms:
            if arm.excluded is None and not arm.figures:
                yield Turn(arm, is_final=False)
        standing = self.standing()
        for arm in sorted(self._undecided_arms(standing), key=lambda arm: (len(arm.figures), arm.mean_log)):
            if len(arm.figures) < self.rules.most_samples:
                yield Turn(arm, is_final=False)
        yield from self._last_turns(standing)

    def _last_turns(self, standing: Standing) -> Iterator[Turn]:
        """The turns that the base and a winner need, and those of the final."""
        if self.lacks_base(standing):
            yield Turn(self.arms[0], is_final=False)
        num_figures = self._num_final_figures(standing)
        choice = standing.choice
        if choice is not None and len(choice.figures) + num_figures < self._num_winner_figures(standing):
            yield Turn(choice, is_final=False)
        for arm in sorted(self.finalists(standing), key=lambda arm: len(arm.final_figures)):
            if len(arm.final_figures) < num_figures:
                yield Turn(arm, is_final=True)

    def lacks_base(self, standing: Standing) -> bool:
        """Whether the base has too few figures: with one, the gain over it has an interval only if others scatter
        enough."""
        base = self.arms[0]
        return bool(self.finalists(standing)) and base.can_win and len(base.all_figures) < BASE_FIGURES

    def is_confirmed(self, standing: Standing) -> bool:
        """Whether the race is decided, the winner has enough figures, and the final has taken place."""
        finalists = self.finalists(standing)
        if standing.choice is None or not standing.is_decided or self._cheaper_arms(standing):
            return False
        if not finalists:
            return True
        num_figures = min(len(arm.final_figures) for arm in finalists)
        has_final = num_figures >= self._num_final_figures(standing)
        return has_final and len(standing.choice.all_figures) >= self._num_winner_figures(standing)

    def _num_winner_figures(self, standing: Standing) -> int:
        """The figures that a winner needs: enough to show a second value, unless its lead is so clear that a second
        value would not turn it around."""
        clear_lead = math.exp(CLEAR_LEAD * self._log_tolerance)
        rivals = [arm for arm in self.finalists(standing) if arm is not standing.choice]
        is_clear = all(standing.intervals[arm.name][0] > clear_lead for arm in rivals)
        if not standing.is_decided or (is_clear and standing.choice is standing.leader):
            return 0
        return LEAST_FIGURES

    def finalists(self, standing: Standing) -> list[Arm]:
        """The chosen arm and the best of the others; none if no other arm can win."""
        choice = standing.choice
        rivals = [arm for arm in self.arms if arm.can_win and arm is not choice]
        if choice is None or not rivals:
            return []
        return [choice, min(rivals, key=lambda arm: arm.mean_log)]

    def _num_final_figures(self, standing: Standing) -> int:
        """The number of figures of each of the last two in their final: more of them where they scatter."""
        for arm in self.finalists(standing):
            low, high = standing.intervals[arm.name]
            is_unbounded = low == 0
            if is_unbounded or not self._is_sharp(math.log(low), math.log(high)):
                return NOISY_FINAL
        return self.rules.final_samples

    def gain(self, arm: Arm, base: Arm) -> Ratio:
        """The base's figure over the arm's. Two figures or more of the final stand alone: the earlier figures, which
        chose the arm, flatter it. An arm that jumps between two values has all. How far figures scatter is told by
        those of all arms."""
        samples = [base.all_figures, arm.all_figures]
        if len(arm.final_figures) > 1 and not arm.is_unstable:
            samples = [base.all_figures, arm.final_figures, arm.figures]
        for other in self.arms:
            if other.figures and other is not arm and other is not base:
                samples.append(other.all_figures)
        logs = [np.log(figures) for figures in samples]
        compared = differences(logs, (1 - self.rules.confidence) / 2, self._log_tolerance)
        value, low = _exp(logs[0].mean() - logs[1].mean()), compared.lows[0, 1]
        if math.isinf(low):
            return Ratio(value)
        high = compared.highs[0, 1]
        return Ratio(value, _exp(low), _exp(high), measurable=bool(low > 0 or high < 0))

    def is_at_cap(self, standing: Standing) -> bool:
        """Whether the arms whose next figure may decide the race have as many as an arm gets."""
        return all(len(arm.figures) >= self.rules.most_samples for arm in self._undecided_arms(standing))

    def _undecided_arms(self, standing: Standing) -> list[Arm]:
        """The arms whose next figure may decide the race: the last two, and each other one that may be better than the
        leader by more than the tolerance. With a winner: those that are cheaper and may be winners, and the leader."""
        if standing.is_decided:
            return self._cheaper_arms(standing)
        arms = self.finalists(standing)
        for arm in standing.alive:
            low, _ = standing.intervals[arm.name]
            may_be_better = low < 1 / (1 + self.rules.tolerance)
            if may_be_better and arm not in arms:
                arms.append(arm)
        return arms

    def _cheaper_arms(self, standing: Standing) -> list[Arm]:
        """The arms that may be cheaper winners than the chosen one, and the leader; none if the cost is no goal."""
        choice, leader = standing.choice, standing.leader
        if choice is None or leader is None or not self.rules.least_cost:
            return []
        cheaper = []
        for arm in standing.possible:
            if arm.cost < choice.cost and len(arm.figures) < self.rules.most_samples:
                cheaper.append(arm)
        if cheaper and leader not in cheaper:
            cheaper.append(leader)
        return cheaper

    @property
    def _log_tolerance(self) -> float:
        return math.log1p(self.rules.tolerance)

    def _error_of_look(self) -> float:
        num_comparisons = max(len(self.arms) - 1, 1)
        num_looks = 2 * (self.rules.most_samples + NOISY_FINAL)  # at two arms, after a figure of either
        return (1 - self.rules.confidence) / num_comparisons / num_looks


def _inverse(ratio: float) -> float:
    return 1 / ratio if ratio else math.inf


def _exp(difference: float) -> float:
    """The ratio of a difference of logs; infinite beyond all floats."""
    try:
        return math.exp(difference)
    except OverflowError:
        return math.inf
