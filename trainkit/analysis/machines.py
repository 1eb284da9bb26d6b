"""Ratios within machines: two machines of one kind can differ by more than two settings do."""

from collections.abc import Iterable, Sequence

from trainkit.analysis.dropping import step_times_ms
from trainkit.results.row import Row
from trainkit.stats import Ratio, ratio


def step_ratio(rows: Sequence[Row], other_rows: Sequence[Row]) -> Ratio:
    """The step time of a setting over that of another, within machines."""
    rows, other_rows = of_common_machines(rows, other_rows)
    return ratio(step_times_ms(rows), step_times_ms(other_rows))


def of_common_machines(rows: Sequence[Row], other_rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of two settings from the machines that both were measured on; all rows if there is none.

    Rows that do not tell their machine count as rows of one machine.
    """
    common = machines_of(rows) & machines_of(other_rows)
    if not common:
        return list(rows), list(other_rows)
    return _of_machines(rows, common), _of_machines(other_rows, common)


def machines_of(rows: Iterable[Row]) -> set[str | None]:
    return {row.machine_id for row in rows}


def _of_machines(rows: Iterable[Row], machines: set[str | None]) -> list[Row]:
    return [row for row in rows if row.machine_id in machines]
