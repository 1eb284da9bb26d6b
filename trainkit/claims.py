"""What was claimed of a comparison, and whether what was measured bears it out."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainkit.contrasts import Contrast

ABOUT = 0.1  # relative: `about 1` is as fast, give or take so much
OUTCOMES = {True: "held", False: "did not hold", None: "undecided"}


@dataclass(frozen=True)
class Claim:
    """That one figure is `below` or `above` another, or `about` `times` as large."""

    side: str
    times: float = 1.0


def read_claim(words: str) -> Claim:
    """Of `below 1`, `above 1`, `about 0.5`. ValueError of anything else."""
    found = re.fullmatch(r"(below|above) 1|about (\d+(?:\.\d+)?)", words)
    if found is None:
        raise ValueError(f"claimed {words}: expected below 1, above 1, or about and a number")
    return Claim(found[1]) if found[1] else Claim("about", float(found[2]))


def outcome(claim: Claim, pair: Contrast) -> bool | None:
    """Whether it held; None where that is undecided: a difference that chance may have made, an interval that reaches
    into what was claimed and out of it, a single run."""
    if claim.side == "about":
        return _about(claim.times, pair)
    above = _above(pair)
    return None if above is None else above == (claim.side == "above")


def _about(number: float, pair: Contrast) -> bool | None:
    found, low, high = pair.ratio, number * (1 - ABOUT), number * (1 + ABOUT)
    if found is None or found.low is None or found.high is None:
        return None
    if low <= found.low and found.high <= high:
        return True
    return False if found.high < low or found.low > high else None


def _above(pair: Contrast) -> bool | None:
    if pair.ratio is not None:
        return pair.ratio.value > 1 if pair.ratio.measurable else None
    these, those = pair.shares or ([], [])
    if min(len(these), len(those)) < 2:
        return None
    return True if min(these) > max(those) else False if max(these) < min(those) else None


def judged(claim: Claim, pairs: Sequence[Contrast]) -> str:
    """One sentence: what was claimed, and of how many of these comparisons (at least one) it held."""
    if pairs[0].shares is not None:
        said = {"below": "fewer", "above": "more"}.get(claim.side, claim.side)
    else:
        said = f"{claim.side} {claim.times:g}x"
    counts = Counter(outcome(claim, pair) for pair in pairs)
    if len(counts) == 1:
        return f"Claimed {said}: {OUTCOMES[next(iter(counts))]}{' in all' * (len(pairs) > 1)}."
    first, *rest = (f"{words} in {counts[known]}" for known, words in OUTCOMES.items() if counts[known])
    return f"Claimed {said}: {', '.join([f'{first} of {len(pairs)}', *rest])}."
