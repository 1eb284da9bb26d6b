"""The column that `optimized_metric` names: what a sweeper that searches gets of each row, and in which direction."""

import difflib
from collections.abc import Iterable
from statistics import median
from typing import get_args

from trainkit.config.errors import ConfigError
from trainkit.results.columns import OverRepeats, columns
from trainkit.results.row import Row

METRIC = "val_metric"  # whose direction is in the row


def check_optimized(name: str) -> None:
    """Raise ConfigError if this is no column of a measured number."""
    measured = []
    for described in columns(Row).values():
        is_number = {int, float} & {described.type, *get_args(described.type)}
        if is_number and described.over_repeats != OverRepeats.DISTINCT:
            measured.append(described.name)
    if name not in measured:
        near = difflib.get_close_matches(name, measured, 1, cutoff=0.4)
        way_out = f"did you mean {near[0]}?" if near else "try val_loss"
        raise ConfigError(f"optimized_metric = {name}: expected a measured column of the row; {way_out}")


def is_maximized(name: str, rows: Iterable[Row] = ()) -> bool | None:
    """Whether a higher value is better. Of `val_metric` the rows say it: without one that does, None."""
    if name != METRIC:
        return columns(Row)[name].higher_is_better
    for row in rows:
        if row.metric_higher_is_better is not None:
            return row.metric_higher_is_better
    return None


def direction_label(is_higher_better: bool | None) -> str:
    if is_higher_better is None:
        return "its direction is in the rows"
    return "higher is better" if is_higher_better else "lower is better"


def optimized_value(rows: Iterable[Row], name: str) -> float:
    """The median of the column over the repeats of a setting. Raises ValueError if one of them has no value."""
    values = []
    for row in rows:
        value = getattr(row, name)
        if row.status != "ok" or value is None:
            raise ValueError(f"{row.run_id}: {row.error or f'{row.status}, without {name}'}")
        values.append(value)
    return float(median(values))


def best_row(rows: Iterable[Row], name: str) -> Row | None:
    """The row with the best value; None if no row has one."""
    measured = [row for row in rows if row.status == "ok" and getattr(row, name) is not None]
    is_higher_better = is_maximized(name, measured)
    if not measured or is_higher_better is None:
        return None
    sign = -1 if is_higher_better else 1
    return min(measured, key=lambda row: sign * getattr(row, name))
