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
    NOT = "did not hold"
    NONE = "no difference"
    OPEN = "undecided"


@dataclass(frozen=True)
class Claim:
    """A claim that a ratio is `below` or `above` 1, or `about` a number."""

    side: str
    number: float | None = None


def read_claim(text: str, column: str | None) -> Claim:
    """Read `below 1`, `above 1` or `about 0.5`. Raises ValueError for anything else, and for `about` a fraction."""
    match = re.fullmatch(r"(below|above) 1|about (\d+(?:\.\d+)?)", text.strip())
    if is_fraction(column) and (match is None or match[2]):
        raise ValueError(f"claimed {text}: expected below 1 or above 1")
    if match is None:
        raise ValueError(f"claimed {text}: expected below 1 or above 1, or about and a number")
    if match[1]:
        return Claim(match[1])
    return Claim("about", float(match[2]))


def judge_claim(claim: Claim, pair: PairwiseComparison) -> Outcome:
    """Judge a claim by a pair. It is undecided if the difference may be chance, if the interval lies partly within the
    claim, and if a side has a single run. A claim about fractions needs every run of one side below every run of the
    other."""
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
    if beyond_noise and (ratio.high < lowest or ratio.low > highest):
        return Outcome.NOT
    return Outcome.OPEN


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
