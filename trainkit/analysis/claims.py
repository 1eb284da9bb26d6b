"""Claims about a pairwise comparison, and whether the measurements bear them out."""

import math
import re
from dataclasses import dataclass
from enum import Enum

from trainkit.analysis.pairs import PairwiseComparison, is_fraction
from trainkit.stats import Ratio

ABOUT = 0.1  # relative: `about 1` allows for a tenth more or less
MIN_FRACTIONS = 3  # runs of each side: with fewer, all of one side are often above all of the other by chance


class Outcome(Enum):
    HELD = "held"
    DIRECTION = "held in direction only"
    NOT = "did not hold"
    NONE = "no difference"
    OPEN = "undecided"


@dataclass(frozen=True)
class ClaimedRatio:
    """A ratio claimed to be `below` or `above` 1, or `about` a number."""

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
    """Read `below 1`, `above 1` or `about 0.5`; without a text the ratio of the published figures is claimed. Raises
    ValueError for anything else, and for `about` a fraction."""
    if text is None:
        if published is None or published.ratio is None or is_fraction(column):
            raise ValueError("claimed is left out: expected below 1, above 1 or about NUMBER")
        return ClaimedRatio("about", published.ratio)
    match = re.fullmatch(r"(below|above) 1|about (\d+(?:\.\d+)?)", text.strip())
    if is_fraction(column) and (match is None or match[2]):
        raise ValueError(f"claimed {text}: expected below 1 or above 1")
    if match is None:
        raise ValueError(f"claimed {text}: expected below 1 or above 1, or about and a number")
    if match[1]:
        return ClaimedRatio(match[1])
    return ClaimedRatio("about", float(match[2]))


def judge_claim(claim: ClaimedRatio, pair: PairwiseComparison) -> Outcome:
    """Judge a claim by a pair. It is undecided if the difference may be chance, if the interval lies partly within the
    claim, and if a side has a single run. A number is missed in its size only if the ratio is measurably on the same
    side of 1. A claim about fractions needs every run of one side below every run of the other."""
    if claim.number is not None:
        return _judge_number(claim.number, pair.ratio)
    if pair.of_fraction:
        return _judge_fractions(claim.side, pair.choice_values, pair.baseline_values)
    if pair.ratio is None or not pair.ratio.measurable:
        return Outcome.OPEN
    if (pair.ratio.value > 1) == (claim.side == "above"):
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


def _judge_fractions(side: str, choice_values: list[float], baseline_values: list[float]) -> Outcome:
    if min(len(choice_values), len(baseline_values)) < MIN_FRACTIONS:
        return Outcome.OPEN
    if len(set(choice_values + baseline_values)) == 1:
        return Outcome.NONE
    lower, higher = choice_values, baseline_values
    if side == "above":
        lower, higher = higher, lower
    if max(lower) < min(higher):
        return Outcome.HELD
    if min(lower) > max(higher):
        return Outcome.NOT
    return Outcome.OPEN
