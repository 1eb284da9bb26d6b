"""How figures are said: the only place where numbers become strings. "-" is what was not measured."""

import math
import re
from collections.abc import Iterable, Sequence
from statistics import median

LONGEST_REASON = 200  # an error of the compiler can be pages; all of it lies in row.json


def factor(value: float) -> str:
    # Two repeats that have little in common give an interval over many powers of ten.
    return fixed(value, 2) if value < 1000 else "1,000+"


def fixed(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:,.{decimals}f}"


def decimals(values: Iterable[float | None], digits: int) -> int:
    """The decimals that show the smallest value to so many digits: 3 at most, and the same for a whole column."""
    smallest = min((abs(value) for value in values if value), default=1.0)
    return min(max(digits - 1 - math.floor(math.log10(smallest)), 0), 3)


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{fixed(value, decimals([value], 3))} s"


def duration(value_s: float) -> str:
    """Two digits or more, in the unit that people would say it in."""
    in_units = ((value_s / 3600, "h"), (value_s / 60, "min"))
    value, unit = next((one for one in in_units if one[0] >= 2), (value_s, "s"))
    return f"{fixed(value, 0 if value >= 10 else 1)} {unit}"


def scientific(value: float) -> str:
    return f"{value:.1e}"


def percent(frac: float | None) -> str:
    if frac is None:
        return "-"
    return f"{100 * frac:.1f} %" if frac < 10 else "1,000+ %"


def shares(fracs: Sequence[float]) -> str:
    """The median of several repeats, with the lowest and the highest where they are said differently."""
    low, high = percent(min(fracs)), percent(max(fracs))
    return percent(median(fracs)) + (f" ({low} to {high})" if low != high else "")


def size(value: int | None) -> str:
    unit, (in_unit,) = in_one_unit([value])
    return "-" if in_unit is None else f"{fixed(in_unit, decimals([in_unit], 3))} {unit}"


def in_one_unit(values: Iterable[int | None]) -> tuple[str, list[float | None]]:
    """One unit for all, GiB where the largest has one, and the values in it."""
    values = list(values)
    unit, size = ("GiB", 2**30) if max((v or 0 for v in values), default=0) >= 2**30 else ("MiB", 2**20)
    return unit, [None if value is None else value / size for value in values]


def clean(text: str) -> str:
    """One line that a terminal can show: no escape sequences, no line breaks."""
    return "".join(c if c.isprintable() else " " for c in re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text))


def short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."
