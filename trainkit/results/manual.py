"""docs/reference/row.md, made from the columns."""

import re
from collections.abc import Iterable

from trainkit.results.columns import Column, columns
from trainkit.results.epoch import EpochRecord
from trainkit.results.facts import ExpectedLatency, GraphBreak, Region, ShapeLatency, Stage
from trainkit.results.row import COLUMN_GROUPS

MADE_BY = "<!-- Made by `python scripts/reference.py` from the code; edit the columns in trainkit/results/. -->"


def row_page() -> str:
    """docs/reference/row.md: every column of `row.json` and `epochs.jsonl`."""
    blocks = ["# Columns of a row", MADE_BY]
    blocks.append(
        "A run leaves one row, `row.json`, and a record for each epoch, a line of `epochs.jsonl`. A value that was not "
        "measured is `null`. *Over ranks* says how the values of several ranks become one, *over repeats* how a "
        "comparison shows the repeats of a setting."
    )
    for group in COLUMN_GROUPS:
        blocks += [f"## {group.__name__}", _docstring(group), _reference_table(columns(group).values())]
    blocks += ["## Nested facts", "Objects inside of lists, by their type above."]
    for fact in (GraphBreak, Region, ShapeLatency, Stage, ExpectedLatency):
        names = ", ".join(f"`{name}`" for name in fact.__dataclass_fields__)
        blocks.append(f"**{fact.__name__}**: {_docstring(fact)} Fields: {names}.")
    blocks += ["# Columns of an epoch record", _docstring(EpochRecord), _reference_table(columns(EpochRecord).values())]
    return "\n\n".join(blocks) + "\n"


def _docstring(described: type) -> str:
    return " ".join((described.__doc__ or "").split())


def _reference_table(listed: Iterable[Column]) -> str:
    lines = ["| column | type | unit | meaning | over ranks | over repeats | loggers' name |"]
    lines.append("| :-- | :-- | :-- | :-- | :-- | :-- | :-- |")
    for column in listed:
        cells = [f"`{column.name}`", f"`{_type(column)}`", column.unit, column.help]
        cells += [column.over_ranks, column.over_repeats, column.logged]
        escaped = [cell.replace("|", r"\|") for cell in cells]
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def _type(column: Column) -> str:
    """The type as it is written in the code, without modules."""
    text = column.type.__name__ if isinstance(column.type, type) else str(column.type)
    return re.sub(r"\b[\w.]+\.(\w+)", r"\1", text)
