"""The facts about a column, kept on the field that holds it: unit, title, help, reductions, tables.

A field of Row or EpochRecord is made by `column(...)`. Tables, plots, loggers and docs/reference/row.md read these
facts, so a column is described in one place.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

GIB = 2**30
REQUIRED = MISSING  # the default of a column without one


class Section(StrEnum):
    """The parts of a report that show columns as they are, by their titles."""

    COMPILER = "What the compiler did"
    COMPILE_TIME = "Parts of the compile time"
    CHECK = "Same numbers as eager? Largest relative difference to float64"
    PACKAGE = "Start-up and size"
    MEMORY = "Peak memory"
    ENVIRONMENT = "Environment"


class OverRanks(StrEnum):
    """How the values of the ranks become one value."""

    RANK_0 = "rank 0"
    LARGEST = "largest"
    SUM = "sum"
    MEAN = "mean"
    ANY = "any"
    ALL = "all"

    def reduce(self, values: Sequence[Any]) -> Any:
        """Reduce a value of each rank, in the order of ranks. A rank without a value (None) does not count."""
        measured = [value for value in values if value is not None]
        if self is OverRanks.RANK_0:
            return values[0]
        if not measured:
            return None
        if self is OverRanks.LARGEST:
            return max(measured)
        if self is OverRanks.ANY:
            return any(measured)
        if self is OverRanks.ALL:
            return all(measured)
        total = sum(measured)
        return total if self is OverRanks.SUM else total / len(measured)


class OverRepeats(StrEnum):
    """How the values of a setting's repeats are shown as one."""

    DISTINCT = "distinct values"
    MEDIAN = "median"
    LARGEST = "largest"


SLOWEST = {"over_ranks": OverRanks.LARGEST, "over_repeats": OverRepeats.MEDIAN}  # of times


@dataclass(frozen=True)
class Column:
    """A field of a Row or an EpochRecord. `shown` has the heading in each table that shows the column; `logged` is its
    name for loggers, which get GiB under a name that ends in `_gib`. Lower is better unless `higher_is_better`."""

    help: str
    name: str = ""
    type: Any = None
    unit: str = ""
    title: str = ""
    over_ranks: OverRanks = OverRanks.RANK_0
    over_repeats: OverRepeats = OverRepeats.DISTINCT
    shown: Mapping[Section, str] = field(default_factory=dict)
    logged: str = ""
    higher_is_better: bool = False


def column(default: Any, help_text: str, **facts: Any) -> Any:
    """A dataclass field with the facts of a Column. A default that is a type is called for each object."""
    metadata = {"column": Column(help_text, **facts)}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@functools.cache
def columns(record: type) -> dict[str, Column]:
    """The columns of Row or EpochRecord by name, in the order of its fields."""
    described = {}
    for f in fields(record):
        described[f.name] = replace(f.metadata["column"], name=f.name, type=f.type)
    return described


def headings(record: type, section: Section) -> dict[str, str]:
    """The headings of the columns that a section shows, by name, in the order of the record's fields."""
    shown = {}
    for name, described in columns(record).items():
        if section in described.shown:
            shown[name] = described.shown[section]
    return shown
