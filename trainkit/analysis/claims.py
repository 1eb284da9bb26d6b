"""Claims about a pairwise comparison, and whether the measurements bear them out."""

import math
import re
from dataclasses import dataclass
from enum import Enum

from trainkit.analysis.pairs import PairwiseComparison, is_fraction
from trainkit.stats import Ratio

ABOUT = 0.1  # relative: `about 1` allows for a tenth more or less
CLAIMED = "below 1, above 1, better, worse, about NUMBER or NUMBER to NUMBER"
NUMBER = r"\d+(?:\.\d+)?"
MIN_FRACTIONS = 3  # runs of each side: with fewer, all of one side are often above all of the other by chance


class Outcome(Enum):
    HELD = "held"
    DIRECTION = "held in direction only"
    NOT = "did not hold"
    NONE = "no difference"
    OPEN = "undecided"


@dataclass(frozen=True)
class ClaimedRatio:
    """A ratio claimed to be `below` or `above` 1, `about` a number, or `from` that to another one; or the choice to be
    `better` or `worse`."""

    side: str
    number: float | None = None
    up_to: float | None = None  # of `from`


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
    """Read `below 1`, `above 1`, `about 0.5`, `1.5 to 2`, `better` or `worse`; without a text that of the published
    figures is claimed. Raises ValueError for anything else, and for a number claimed of a fraction."""
    if text is None:
        if published is None or published.ratio is None or is_fraction(column):
            raise ValueError(f"claimed is left out: expected {CLAIMED}")
        return ClaimedRatio("about", published.ratio)
    side = re.fullmatch(r"(below|above) 1|(better|worse)", text.strip())
    if side is not None:
        return ClaimedRatio(side[1] or side[2])
    if is_fraction(column):
        raise ValueError(f"claimed {text}: expected below 1, above 1, better or worse")
    about = re.fullmatch(rf"about ({NUMBER})", text.strip())
    if about is not None and float(about[1]) > 0:
        return ClaimedRatio("about", float(about[1]))
    between = re.fullmatch(rf"({NUMBER}) to ({NUMBER})", text.strip())
    if between is not None and 0 < float(between[1]) < float(between[2]):
        return ClaimedRatio("from", float(between[1]), float(between[2]))
    raise ValueError(f"claimed {text}: expected {CLAIMED}")


def judge_claim(claim: ClaimedRatio, pair: PairwiseComparison) -> Outcome:
    """Judge a claim by a pair. It is undecided if the difference may be chance, if the interval lies partly within the
    claim, and if a side has a single run. Of a number the direction alone holds if the ratio is measurably on the same
    side of 1, and its interval not within the claim; of a range it does not if the interval lies outside. A claim about
    fractions needs every run of one side below every run of the other, and so does one about a column that is 0 in all
    runs of a side, which has no ratio. A claim about the metric of the validation needs a difference by more than
    chance, see `candidates.metrics_differ`. What is better is told by the direction of the column, or of the metric; it
    is undecided if rows do not tell it."""
    if claim.number is not None:
        return _judge_number(claim.number, claim.up_to, pair.ratio)
    claims_higher = _claims_higher(claim.side, pair)
    if claims_higher is None:
        return Outcome.OPEN
    if pair.of_metric:
        return _judge_metric(claims_higher, pair)
    if pair.of_fraction or _has_zero_side(pair):
        return _judge_values(claims_higher, pair.choice_values, pair.baseline_values)
    if pair.ratio is None or not pair.ratio.measurable:
        return Outcome.OPEN
    if (pair.ratio.value > 1) == claims_higher:
        return Outcome.HELD
    return Outcome.NOT


def _has_zero_side(pair: PairwiseComparison) -> bool:
    return set(pair.choice_values) == {0} or set(pair.baseline_values) == {0}


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


def _judge_number(number: float, up_to: float | None, ratio: Ratio | None) -> Outcome:
    if ratio is None or ratio.low is None or ratio.high is None or ratio.noise_floor is None:
        return Outcome.OPEN
    lowest, highest = number * (1 - ABOUT), number * (1 + ABOUT)
    if up_to is not None:
        lowest, highest = number, up_to
    if lowest <= ratio.low and ratio.high <= highest:
        return Outcome.HELD
    distance = max(math.log(lowest / ratio.value), math.log(ratio.value / highest))
    beyond_noise = distance > math.log1p(ratio.noise_floor)
    is_outside = beyond_noise and (ratio.high < lowest or ratio.low > highest)
    if is_outside and up_to is not None:
        return Outcome.NOT
    middle = math.sqrt(lowest * highest)
    claims_difference = abs(math.log(middle)) > math.log1p(ABOUT)
    if claims_difference and ratio.measurable and (ratio.value > 1) == (middle > 1):
        return Outcome.DIRECTION
    if is_outside:
        return Outcome.NOT
    return Outcome.OPEN


def _judge_values(claims_higher: bool, choice_values: list[float], baseline_values: list[float]) -> Outcome:
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
