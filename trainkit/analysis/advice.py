"""What a race says in the end: the settings to train with, and what is known of all that were tried."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainkit.analysis.arms import Arm
from trainkit.analysis.grouping import short_override
from trainkit.analysis.race import Race, Standing
from trainkit.config.factors import LeftOut
from trainkit.results.ledger import Measurement
from trainkit.stats import Ratio, ratio


@dataclass(frozen=True)
class Tried:
    """An arm of a race, with its jobs.

    `gain` is the base's figure over its own; None for the base itself, and without a figure of both. `interval` tells
    how many times as good as the leader it is, together with those of all other arms. `outcome` follows from it:
    `chosen`, `leading` (the choice of a race that ended before it was confirmed), `equal`, `no_better` (as good as the
    chosen one or worse: the race does not know which), `slower`, `open` (may be the best of a race that ended before it
    was confirmed) or `excluded`. `may_be_equal`: the race does not know whether it is as good as the best.
    """

    label: str
    overrides: tuple[str, ...]
    jobs: tuple[Measurement, ...]
    gain: Ratio | None
    interval: tuple[float, float] | None
    outcome: str
    is_unstable: bool
    reason: str | None
    is_leader: bool = False
    may_be_equal: bool = False

    @property
    def is_choice(self) -> bool:
        return self.outcome in ("chosen", "leading")

    @property
    def compile_s(self) -> float | None:
        """The compile time of the job that found the cache coldest."""
        return max([job.compile_s for job in self.jobs if job.compile_s is not None], default=None)

    @property
    def peak_bytes(self) -> int | None:
        return max([job.peak_bytes for job in self.jobs if job.peak_bytes is not None], default=None)

    @property
    def unchecked(self) -> str | None:
        """Why its numbers were not compared with eager's, by the last job that tried."""
        reasons = [job.unchecked for job in self.jobs if job.unchecked is not None]
        return reasons[-1] if reasons else None


@dataclass(frozen=True)
class Effect:
    """A value of a factor: the figure without it over the one with it, all else being equal. `over` is the label of the
    arm without it."""

    value: str
    over: str
    gain: Ratio


@dataclass(frozen=True)
class Round:
    """How many times as good as the leader the arms were when a round had ended, as intervals by label, and the labels
    of those that cannot win: `eliminated` are slower, `excluded` for another reason, without an interval. A round has
    at most one job of each of the arms that were `measured` in it. `final`: of the last two."""

    name: str
    leader: str
    intervals: dict[str, tuple[float, float]]
    eliminated: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advice:
    """The end of a race, or its state when it was stopped.

    `base_label` names the settings that it began with. `choice` is None if nothing can win. Without `is_decided`, or
    without `is_confirmed` by the jobs that a winner gets in the end, it is the best so far. `capped_at` are the jobs of
    each setting in question after which an undecided race ended; None if its budget ended it. No arm is more than
    `most_gain` better than the chosen one, with the confidence of the rules. An arm that is at most `tolerance` worse
    than the best is as good. `not_tried` did not fit into the budget; `left_out` are factors that have no effect or
    were not named. `largest_batch` is the largest batch size of those that were tried that fits, in the mode
    `batch_mode`; None if none was tried. `changes_training` are the overrides of the choice that do. With
    `minimizes_memory` the choice takes the least memory of all that are as good, and a figure is a time.
    `is_unchecked`: the choice is compiled, and none of its jobs was compared with eager.
    """

    goal: str
    tried: tuple[Tried, ...]
    base_label: str
    choice: Tried | None
    is_decided: bool
    is_confirmed: bool
    most_gain: float
    tolerance: float
    used_s: float
    budget_s: float
    not_tried: tuple[LeftOut, ...]
    left_out: tuple[LeftOut, ...]
    effects: tuple[Effect, ...]
    rounds: tuple[Round, ...]
    largest_batch: int | None = None
    capped_at: int | None = None
    batch_mode: str | None = None
    changes_training: tuple[str, ...] = ()
    minimizes_memory: bool = False
    is_unchecked: bool = False

    @property
    def ended(self) -> list[Tried]:
        """Those that are out because a job outlasted the time that it had."""
        return [tried for tried in self.tried if tried.outcome == "excluded" and tried.jobs[-1].is_ended_by_share]

    @property
    def equals(self) -> list[Tried]:
        """The others that are as good as the chosen one."""
        return [tried for tried in self.tried if tried.outcome == "equal"]

    @property
    def unstable(self) -> list[Tried]:
        """The others that jump between two values, of which only the slower one was judged."""
        return [tried for tried in self.tried if tried.is_unstable and not tried.is_choice]

    @property
    def smaller(self) -> list[Tried]:
        """Those that take less memory than the choice, and could be advised."""
        if self.choice is None or self.choice.peak_bytes is None:
            return []
        smaller = []
        for tried in self.tried:
            can_win = tried.outcome != "excluded" and not tried.is_unstable
            if can_win and tried.peak_bytes is not None and tried.peak_bytes < self.choice.peak_bytes:
                smaller.append(tried)
        return smaller


def arm_label(overrides: Sequence[str]) -> str:
    """The settings of an arm in short: `default, trainer.channels_last=true`."""
    return ", ".join(short_override(override) for override in overrides) or "the settings as they are"


def tried_arms(race: Race, jobs: Mapping[str, Sequence[Measurement]]) -> list[Tried]:
    """The arms of a race that have a figure, or are excluded by a job, the base first; `jobs` are those of each arm, by
    its name."""
    standing = race.standing()
    is_confirmed = race.is_confirmed(standing)
    tried = []
    for arm in race.arms:
        is_known = bool(arm.all_figures) or arm.excluded is not None
        if not jobs[arm.name] or not is_known:
            continue
        overrides = tuple(jobs[arm.name][0].overrides)
        tried.append(
            Tried(
                label=arm_label(overrides),
                overrides=overrides,
                jobs=tuple(jobs[arm.name]),
                gain=_gain(arm, race, standing, is_confirmed),
                interval=standing.times_as_good.get(arm.name),
                outcome=_outcome(arm, standing, is_confirmed),
                is_unstable=arm in standing.unstable,
                reason=arm.excluded,
                is_leader=arm is standing.leader,
                may_be_equal=arm in standing.possible,
            )
        )
    return tried


def _gain(arm: Arm, race: Race, standing: Standing, is_confirmed: bool) -> Ratio | None:
    """The base's figure over an arm's.

    The figures that made an arm the leader flatter it. Until a race is confirmed, the leader's interval is the one that
    holds together with those of the other arms.
    """
    base = race.arms[0]
    if arm is base or not arm.figures or not base.figures:
        return None
    if arm is not standing.leader or is_confirmed or base.name not in standing.intervals:
        return race.gain(arm, base)
    low, high = standing.intervals[base.name]
    if low == 0 or math.isinf(high):  # nothing tells how far the figures scatter
        return Ratio(race.gain(arm, base).value)
    return Ratio(math.sqrt(low * high), low, high, measurable=low > 1)


def _outcome(arm: Arm, standing: Standing, is_confirmed: bool) -> str:
    if arm.excluded is not None:
        return "excluded"
    if arm is standing.choice:
        return "chosen" if is_confirmed else "leading"
    if arm in standing.winners:
        return "equal"
    if arm in standing.eliminated:
        return "slower"
    return "no_better" if is_confirmed else "open"


def effects_of(pairs: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]], tried: Sequence[Tried]) -> list[Effect]:
    """The effects of values, each with the overrides of the arm that has it and of the arm without it."""
    figures = {arm.overrides: _figures(arm.jobs) for arm in tried if arm.outcome != "excluded"}
    effects = []
    for value, with_value, without in pairs:
        has_effect = with_value != without
        if has_effect and figures.get(with_value) and figures.get(without):
            gain = ratio(figures[without], figures[with_value])
            effects.append(Effect(short_override(value), arm_label(without), gain))
    return effects


def _figures(jobs: Sequence[Measurement]) -> list[float]:
    return [job.figure for job in jobs if job.figure is not None]
