"""Claims about a pairwise comparison, and whether the measurements bear them out."""

import math
import re
from dataclasses import dataclass
from enum import Enum

from trainkit.analysis.pairs import PairwiseComparison, is_fraction
from trainkit.stats import Ratio

ABOUT = 0.1  # relative: `about 1` allows for a tenth more or less
CLAIMED = "below 1, above 1, better, worse or about NUMBER"
MIN_FRACTIONS = 3  # runs of each side: with fewer, all of one side are often above all of the other by chance


class Outcome(Enum):
    HELD = "held"
    DIRECTION = "held in direction only"
    NOT = "did not hold"
    NONE = "no difference"
    OPEN = "undecided"


@dataclass(frozen=True)
class ClaimedRatio:
    """A ratio claimed to be `below` or `above` 1, or `about` a number; or the choice to be `better` or `worse`."""

    side: str
    number: float | None = None


@dataclass(frozen=True)
class Published:
    """The figures that a source gives for the two sides of a comparison, as printed, and their ratio: as of a pairwise
    comparison, None if a side is 0."""

    choice: str
    baseline: str
    ratio: float | None


def read_published(choice: str, baseline: str, column: str | None) -> Published:
    """Read two figures, each a number and one unit: `8.4707 ms`. Raises ValueError for anything else."""
    figures = []
    for text in (choice, baseline):
        match = re.fullmatch(r"([0-9][0-9,]*(?:\.[0-9]+)?) (\S+)", text)
        if match is None:
            raise ValueError(f"published {text}: expected a number and its unit, as in 8.4707 ms")
        figures.append((float(match[1].replace(",", "")), match[2]))
    (choice_value, choice_unit), (baseline_value, baseline_unit) = figures
    if choice_unit != baseline_unit:
        raise ValueError(f"published {choice}, {baseline}: expected the same unit")
    if column is None:  # of times: how many times as fast
        choice_value, baseline_value = baseline_value, choice_value
    ratio = None
    if choice_value and baseline_value:
        ratio = choice_value / baseline_value
    return Published(choice, baseline, ratio)


def read_claimed(text: str | None, column: str | None, published: Published | None) -> ClaimedRatio:
    """Read `below 1`, `above 1`, `about 0.5`, `better` or `worse`; without a text the ratio of the published figures is
    claimed. Raises ValueError for anything else, and for `about` a fraction."""
    if text is None:
        if published is None or published.ratio is None or is_fraction(column):
            raise ValueError(f"claimed is left out: expected {CLAIMED}")
        return ClaimedRatio("about", published.ratio)
    match = re.fullmatch(r"(below|above) 1|(better|worse)|about (\d+(?:\.\d+)?)", text.strip())
    if is_fraction(column) and (match is None or match[3]):
        raise ValueError(f"claimed {text}: expected below 1, above 1, better or worse")
    if match is None:
        raise ValueError(f"claimed {text}: expected {CLAIMED}")
    if match[3]:
        if float(match[3]) == 0:
            raise ValueError(f"claimed {text}: expected {CLAIMED}")
        return ClaimedRatio("about", float(match[3]))
    return ClaimedRatio(match[1] or match[2])


def judge_claim(claim: ClaimedRatio, pair: PairwiseComparison) -> Outcome:
    """Judge a claim by a pair. It is undecided if the difference may be chance, if the interval lies partly within the
    claim, and if a side has a single run. A number is missed in its size only if the ratio is measurably on the same
    side of 1. A claim about fractions needs every run of one side below every run of the other, one about the metric of
    the validation a difference by more than chance, see `candidates.metrics_differ`. What is better is told by the
    direction of the column, or of the metric; it is undecided if rows do not tell it."""
    if claim.number is not None:
        return _judge_number(claim.number, pair.ratio)
    claims_higher = _claims_higher(claim.side, pair)
    if claims_higher is None:
        return Outcome.OPEN
    if pair.of_fraction:
        return _judge_fractions(claims_higher, pair.choice_values, pair.baseline_values)
    if pair.of_metric:
        return _judge_metric(claims_higher, pair)
    if pair.ratio is None or not pair.ratio.measurable:
        return Outcome.OPEN
    if (pair.ratio.value > 1) == claims_higher:
        return Outcome.HELD
    return Outcome.NOT


def _claims_higher(side: str, pair: PairwiseComparison) -> bool | None:
    """Whether the choice is claimed to have the higher ratio; None if its direction is unknown."""
    if side in ("below", "above"):
        return side == "above"
    if pair.higher_is_better is None:
        return None
    return pair.higher_is_better == (side == "better")


def _judge_metric(claims_higher: bool, pair: PairwiseComparison) -> Outcome:
    if len({*pair.choice_values, *pair.baseline_values}) == 1:
        return Outcome.NONE
    if not pair.metric_differs:
        return Outcome.OPEN
    if pair.choice_is_higher == claims_higher:
        return Outcome.HELD
    return Outcome.NOT


def _judge_number(number: float, ratio: Ratio | None) -> Outcome:
    if ratio is None or ratio.low is None or ratio.high is None or ratio.noise_floor is None:
        return Outcome.OPEN
    lowest, highest = number * (1 - ABOUT), number * (1 + ABOUT)
    if lowest <= ratio.low and ratio.high <= highest:
        return Outcome.HELD
    beyond_noise = abs(math.log(ratio.value / number)) > math.log1p(ratio.noise_floor)
    if not beyond_noise or (ratio.high >= lowest and ratio.low <= highest):
        return Outcome.OPEN
    claims_difference = abs(math.log(number)) > math.log1p(ABOUT)
    if claims_difference and ratio.measurable and (ratio.value > 1) == (number > 1):
        return Outcome.DIRECTION
    return Outcome.NOT


def _judge_fractions(claims_higher: bool, choice_values: list[float], baseline_values: list[float]) -> Outcome:
    if min(len(choice_values), len(baseline_values)) < MIN_FRACTIONS:
        return Outcome.OPEN
    if len(set(choice_values + baseline_values)) == 1:
        return Outcome.NONE
    lower, higher = choice_values, baseline_values
    if claims_higher:
        lower, higher = higher, lower
    if max(lower) < min(higher):
        return Outcome.HELD
    if min(lower) > max(higher):
        return Outcome.NOT
    return Outcome.OPEN
