"""A race: arms that are measured again and again until one is known to be as good as the best.

A figure is positive, lower is better, and comes from a process of its own. Figures are compared on the log scale, so a
difference is relative.

An arm's variance is its own, moderated towards the variance that all arms share, as far as they share one (Smyth 2004,
"Linear models and empirical Bayes methods for assessing differential expression"). Two arms are compared by Welch's
interval with these variances. An arm leaves the race when its interval lies above the leader (Maron and Moore 1994,
"Hoeffding races"; Even-Dar et al. 2006, successive elimination). The error is divided by the number of comparisons with
the best arm and by the number of looks at each of them (Bonferroni), so all the intervals of a race that concern the
best arm hold together with the requested confidence. It is the normal distribution that this rests on:
`benchmarks/race_replay.py` shows how it holds for others and for recorded rows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from trainkit.stats import CONFIDENCE, Ratio, ratio

LEAST_SPREAD = 0.001  # relative: two figures agree to the last digit by chance
LEAST_SHARED = 3  # arms with repeats that show how far arms share a variance
LEAST_JUMP = 0.05  # relative: two peaks that are closer do not mislead
TIMES_SCATTER = 4  # the jump between two peaks, over the scatter around both


@dataclass(frozen=True)
class Rules:
    """When a race ends. No arm is surely more than `tolerance` (relative) better than a winner. No arm gets more than
    `most_samples` figures before its end, and the last two get `final_samples` more."""

    tolerance: float = 0.02
    most_samples: int = 8
    final_samples: int = 2
    confidence: float = CONFIDENCE


@dataclass
class Arm:
    """A candidate of a race, with its figures in the order in which they were measured.

    `final_figures` were measured after the race had come down to two. `cost` decides between equally good arms: the
    cheapest wins. `excluded` is the reason for which the arm cannot win: it failed, or breaks a constraint.
    """

    name: str
    cost: float = 0.0
    figures: list[float] = field(default_factory=list)
    final_figures: list[float] = field(default_factory=list)
    excluded: str | None = None

    @property
    def all_figures(self) -> list[float]:
        return self.figures + self.final_figures

    @property
    def is_unstable(self) -> bool:
        return len(slower_peak(self.all_figures)) < len(self.all_figures)

    @property
    def can_win(self) -> bool:
        return self.excluded is None and bool(self.figures)

    @property
    def logs(self) -> np.ndarray:
        """The logs of the figures that the arm is judged by: of the slower peak if there are two."""
        return np.log(slower_peak(self.all_figures))


@dataclass(frozen=True)
class Standing:
    """What is known of a race. Intervals are of the figure of an arm over the leader's.

    `leader` has the lowest mean of the arms that can win, None without any. `alive` may still be the best;
    `eliminated` surely are not; `unstable` may be either. Of each of the `winners` it is sure that no arm is better by
    more than the tolerance. `choice` is the cheapest of them; the leader while there are none. `most_gain` is the
    largest relative gain over the chosen arm that any arm may still have.
    """

    leader: Arm | None
    intervals: dict[str, tuple[float, float]]
    alive: tuple[Arm, ...]
    eliminated: tuple[Arm, ...]
    unstable: tuple[Arm, ...]
    winners: tuple[Arm, ...]
    choice: Arm | None
    most_gain: float

    @property
    def is_decided(self) -> bool:
        return bool(self.winners)


@dataclass(frozen=True)
class Turn:
    """The arm to measure next, and whether it is one of the last two, measured side by side."""

    arm: Arm
    is_final: bool

    def record(self, figure: float) -> None:
        figures = self.arm.final_figures if self.is_final else self.arm.figures
        figures.append(figure)


class Race:
    """The arms of a race, and whose turn it is."""

    def __init__(self, arms: Sequence[Arm], rules: Rules | None = None):
        self.arms = list(arms)
        self.rules = rules or Rules()

    def standing(self) -> Standing:
        """What the figures so far say. A later figure may turn it: an arm is alive again if the one that eliminated it
        turns out to be unstable, and slower than it seemed."""
        able = [arm for arm in self.arms if arm.can_win]
        unstable = tuple(arm for arm in able if arm.is_unstable)
        if not able:
            return Standing(None, {}, (), (), (), (), None, math.inf)
        lows, highs = self._intervals(able)
        leader = min(range(len(able)), key=lambda index: _mean_log(able[index]))
        intervals, alive, eliminated, winners = {}, [], [], []
        for index, arm in enumerate(able):
            intervals[arm.name] = (_exp(lows[index, leader]), _exp(highs[index, leader]))
            if lows[index, leader] > 0:
                eliminated.append(arm)
            else:
                alive.append(arm)
            if lows[:, index].min() > -math.log1p(self.rules.tolerance):
                winners.append(arm)
        choice = min(winners, key=lambda arm: arm.cost, default=able[leader])
        most_gain = _exp(-lows[:, able.index(choice)].min()) - 1
        return Standing(
            able[leader], intervals, tuple(alive), tuple(eliminated), unstable, tuple(winners), choice, most_gain
        )

    def next_turn(self, may_run: Callable[[Turn], bool] = lambda turn: True) -> Turn | None:
        """The arm to measure next, None at the end of the race. `may_run` says whether there is budget for a turn.

        Every arm is measured once. Then the arm with the fewest figures of those that may still be the best comes
        first, the better one first among equals: so rounds are interleaved, and poor arms wait until the spread of the
        good ones is known.
        """
        for arm in self.arms:
            turn = Turn(arm, is_final=False)
            if arm.excluded is None and not arm.figures and may_run(turn):
                return turn
        standing = self.standing()
        if not standing.is_decided:
            for arm in sorted(self._in_question(standing), key=lambda arm: (len(arm.figures), _mean_log(arm))):
                turn = Turn(arm, is_final=False)
                if len(arm.figures) < self.rules.most_samples and may_run(turn):
                    return turn
        for arm in sorted(self.finalists(standing), key=lambda arm: len(arm.final_figures)):
            turn = Turn(arm, is_final=True)
            if len(arm.final_figures) < self.rules.final_samples and may_run(turn):
                return turn
        return None

    def finalists(self, standing: Standing) -> list[Arm]:
        """The chosen arm and the best of the others; none if no other can win."""
        choice = standing.choice
        others = [arm for arm in self.arms if arm.can_win and arm is not choice]
        if choice is None or not others:
            return []
        return [choice, min(others, key=_mean_log)]

    def gain(self, arm: Arm, base: Arm) -> Ratio:
        """The base's figure over the arm's. The arm's are those that were measured after it was chosen, if there are
        two or more: the figures that chose it flatter it."""
        figures = arm.all_figures
        if len(arm.final_figures) > 1:
            figures = arm.final_figures
        return ratio(base.all_figures, figures)

    def _in_question(self, standing: Standing) -> list[Arm]:
        """The arms of which another figure may decide the race."""
        leader = standing.leader
        return [arm for arm in standing.alive if arm is leader or standing.intervals[arm.name][0] < self._least_low()]

    def _least_low(self) -> float:
        return 1 / (1 + self.rules.tolerance)

    def _intervals(self, arms: Sequence[Arm]) -> tuple[np.ndarray, np.ndarray]:
        """The bounds of the difference of the mean logs of each two arms, a row less a column."""
        means = np.array([_mean_log(arm) for arm in arms])
        variances, freedoms = moderated_variances([arm.logs for arm in arms])
        scaled = variances / np.array([len(arm.logs) for arm in arms])
        differences = means[:, None] - means
        total = scaled[:, None] + scaled
        with np.errstate(invalid="ignore"):  # an unknown variance is infinite
            freedom = total**2 / (scaled[:, None] ** 2 / freedoms[:, None] + scaled**2 / freedoms)
        halves = np.full(total.shape, math.inf)
        is_known = np.isfinite(total)
        halves[is_known] = special.stdtrit(freedom[is_known], 1 - self._error_of_look()) * np.sqrt(total[is_known])
        np.fill_diagonal(halves, 0.0)
        return differences - halves, differences + halves

    def _error_of_look(self) -> float:
        num_comparisons = max(len(self.arms) - 1, 1)
        num_looks = 2 * (self.rules.most_samples + self.rules.final_samples)  # at two arms, after a figure of either
        return (1 - self.rules.confidence) / num_comparisons / num_looks


def slower_peak(figures: Sequence[float]) -> list[float]:
    """The figures around the higher of two values, or all figures if they do not lie around two.

    Two peaks: a gap splits the figures into two groups of two or more, is at least LEAST_JUMP, and TIMES_SCATTER times
    the scatter within both groups. A single outlier is noise.
    """
    ordered = sorted(figures)
    for size in range(2, len(ordered) - 1):
        gap = math.log(ordered[size] / ordered[size - 1])
        scatter = math.log(ordered[-1] / ordered[0]) - gap
        if gap > math.log1p(LEAST_JUMP) and gap > TIMES_SCATTER * scatter:
            return ordered[size:]
    return ordered


def moderated_variances(samples: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The variance of each sample and its degrees of freedom, moderated as far as the samples share a variance.

    A sample of one value has the shared variance. It is infinite while fewer than LEAST_SHARED samples have repeats:
    nothing is known of it. The shared variance counts at most as much as all repeats that it comes from.
    """
    freedoms = np.array([len(sample) - 1.0 for sample in samples])
    own = np.array([sample.var(ddof=1) if len(sample) > 1 else math.inf for sample in samples])
    own = np.maximum(own, LEAST_SPREAD**2)
    repeated = freedoms > 0
    if repeated.sum() < LEAST_SHARED:
        return own, np.maximum(freedoms, 1)
    shared, shared_freedom = _shared_variance(own[repeated], freedoms[repeated])
    total = freedoms + shared_freedom
    weighted = np.where(repeated, np.where(repeated, own, 0.0) * freedoms, 0.0) + shared_freedom * shared
    return weighted / total, total


def _shared_variance(variances: np.ndarray, freedoms: np.ndarray) -> tuple[float, float]:
    """The variance that samples share, and how many degrees of freedom it is worth (Smyth 2004, section 6.2)."""
    logs = np.log(variances) - special.digamma(freedoms / 2) + np.log(freedoms / 2)
    excess = float(logs.var(ddof=1) - special.polygamma(1, freedoms / 2).mean())
    most = float(freedoms.sum())
    freedom = most
    if excess > 0:  # the variances differ by more than chance
        freedom = min(2 * _inverse_trigamma(excess), most)
    shared = math.exp(float(logs.mean()) + float(special.digamma(freedom / 2)) - math.log(freedom / 2))
    return shared, freedom


def _inverse_trigamma(value: float) -> float:
    """The argument at which trigamma has this value, by Newton's method (Smyth 2004, appendix)."""
    argument = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, argument))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, argument))
        argument += step
        if -step / argument < 1e-8:
            break
    return argument


def _exp(difference: float) -> float:
    """The ratio of a difference of logs; infinite for one that is beyond all floats."""
    with np.errstate(over="ignore"):
        return float(np.exp(difference))


def _mean_log(arm: Arm) -> float:
    return float(arm.logs.mean())
