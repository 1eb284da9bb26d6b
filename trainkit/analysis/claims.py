"""What was claimed of a comparison, and whether what was measured bears it out."""

import math
import re
from dataclasses import dataclass
from enum import Enum

from trainkit.analysis.pairs import Contrast

ABOUT = 0.1  # relative: `about 1` is as fast, give or take so much
LEAST_SHARES = 3  # runs of each side: of fewer, all of one are often above all of the other by chance


class Outcome(Enum):
    HELD = "held"
    NOT = "did not hold"
    NONE = "no difference"
    OPEN = "undecided"


@dataclass(frozen=True)
class Claim:
    """That one of two figures is `below` or `above` the other; with a `number`, `about` so many times as large."""

    side: str
    number: float | None = None


def read_claim(words: str, field: str | None) -> Claim:
    """Of `below 1`, `above 1`, `about 0.5`; not the last where the field is a share. ValueError of anything else."""
    found = re.fullmatch(r"(below|above) 1|about (\d+(?:\.\d+)?)", words.strip())
    share = (field or "").endswith("_frac")
    if found is None or (share and found[2]):
        raise ValueError(f"claimed {words}: expected below 1 or above 1{'' if share else ', or about and a number'}")
    return Claim(found[1]) if found[1] else Claim("about", float(found[2]))


def outcome(claim: Claim, pair: Contrast) -> Outcome:
    """Open are a difference that chance may have made, an interval that reaches into what was claimed and out of it, a
    single run. A claim of shares is decided where no run of one side is among those of the other."""
    if claim.number is not None:
        return _about(claim.number, pair)
    if pair.shares is not None:
        return _of_shares(claim.side, *pair.shares)
    if pair.ratio is None or not pair.ratio.measurable:
        return Outcome.OPEN
    return Outcome.HELD if (pair.ratio.value > 1) == (claim.side == "above") else Outcome.NOT


def _about(number: float, pair: Contrast) -> Outcome:
    found, low, high = pair.ratio, number * (1 - ABOUT), number * (1 + ABOUT)
    if found is None or found.low is None or found.high is None or found.noise_floor is None:
        return Outcome.OPEN
    if low <= found.low and found.high <= high:
        return Outcome.HELD
    apart = abs(math.log(found.value / number)) > math.log1p(found.noise_floor)
    return Outcome.NOT if apart and (found.high < low or found.low > high) else Outcome.OPEN


def _of_shares(side: str, these: list[float], those: list[float]) -> Outcome:
    if min(len(these), len(those)) < LEAST_SHARES:
        return Outcome.OPEN
    if {*these} == {*those} == {these[0]}:
        return Outcome.NONE
    below, above = (these, those) if side == "below" else (those, these)
    if max(below) < min(above):
        return Outcome.HELD
    return Outcome.NOT if min(below) > max(above) else Outcome.OPEN
