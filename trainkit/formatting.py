"""Figures as text. "-" stands for a value that was not measured."""

import math
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from statistics import median

MOST_TIME_DECIMALS = 6  # of milliseconds: they are nanoseconds
LONGEST_REASON = 200  # characters: an error of the compiler can be pages, and all of it is in row.json


def factor(value: float) -> str:
    if value >= 1000:  # an interval of two repeats that differ widely spans many powers of ten
        return "1,000+"
    if 0 < value < 0.0005:
        return "<0.001"
    return fixed(value, 3 if value < 0.095 else 2)


def fixed(value: float | None, decimals: int) -> str:
    """A number with its thousands separated."""
    if value is None:
        return "-"
    return f"{value:,.{decimals}f}"


def decimals(values: Iterable[float | None], digits: int) -> int:
    """The decimals, at most 3, that show the smallest value to so many digits."""
    smallest = min((abs(value) for value in values if value), default=1.0)
    return min(max(digits - 1 - math.floor(math.log10(smallest)), 0), 3)


def time_decimals(times_ms: Iterable[float | None], digits: int) -> int:
    """The decimals that show the shortest time in milliseconds to so many digits: at most 3, but 3 digits in any
    case."""
    times_ms = list(times_ms)
    shortest_ms = min((time_ms for time_ms in times_ms if time_ms), default=1.0)
    if shortest_ms >= 0.1:
        return decimals(times_ms, digits)
    return min(2 - math.floor(math.log10(shortest_ms)), MOST_TIME_DECIMALS)


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{fixed(value, decimals([value], 3))} s"


def duration(value_s: float) -> str:
    """A time to two digits or more, in hours or minutes if it is 2 of them or longer, else in seconds."""
    value, unit = value_s, "s"
    if value_s >= 2 * 3600:
        value, unit = value_s / 3600, "h"
    elif value_s >= 2 * 60:
        value, unit = value_s / 60, "min"
    num_decimals = 0 if value >= 10 else 1
    return f"{fixed(value, num_decimals)} {unit}"


def scientific(value: float) -> str:
    return f"{value:.1e}"


def percent(frac: float | None) -> str:
    if frac is None:
        return "-"
    if frac >= 10:
        return "1,000+ %"
    return f"{100 * frac:.1f} %"


def shares(fracs: Sequence[float]) -> str:
    """The median of several fractions, with the lowest and the highest if these read differently."""
    middle, low, high = percent(median(fracs)), percent(min(fracs)), percent(max(fracs))
    if low == high:
        return middle
    return f"{middle} ({low} to {high})"


def size(num_bytes: int | None) -> str:
    unit, (value,) = in_one_unit([num_bytes])
    if value is None:
        return "-"
    return f"{fixed(value, decimals([value], 3))} {unit}"


def in_one_unit(sizes: Iterable[int | None]) -> tuple[str, list[float | None]]:
    """One unit for all sizes in bytes, GiB if the largest has one, else MiB, and the sizes in it."""
    sizes = list(sizes)
    unit, unit_bytes = "MiB", 2**20
    if any(num_bytes is not None and num_bytes >= 2**30 for num_bytes in sizes):
        unit, unit_bytes = "GiB", 2**30
    sizes_in_unit: list[float | None] = []
    for num_bytes in sizes:
        if num_bytes is None:
            sizes_in_unit.append(None)
        else:
            sizes_in_unit.append(num_bytes / unit_bytes)
    return unit, sizes_in_unit


def clean(text: str) -> str:
    """One line that a terminal can show: no escape sequences, no line breaks."""
    if text.isprintable():
        return text
    without_colors = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    line = ""
    for char in without_colors:
        if not char.isprintable():
            char = " "
        line += char
    return line


def shell_command(words: Iterable[str]) -> str:
    """The words as one line that a shell reads as them: a word that a terminal cannot show is quoted as bash does it,
    `$'a\\x0ab'`."""
    quoted = []
    for word in words:
        if word.isprintable():
            quoted.append(shlex.quote(word))
        else:
            quoted.append("$'" + "".join(map(_escaped, word)) + "'")
    return " ".join(quoted)


def _escaped(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if char.isprintable():
        return char
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))


def short(text: str) -> str:
    """One line that fits a table."""
    text = clean(text)
    if len(text) <= LONGEST_REASON:
        return text
    return text[: LONGEST_REASON - 3] + "..."
