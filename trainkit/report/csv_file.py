"""A comparison as comma-separated values: a line for each setting, a column for each quantity.

Numbers are in the unit that ends the name of their column, as in docs/reference/row.md. They are not formatted, but cut
to SIGNIFICANT digits, so that the same rows give the same text on every machine. Unknown values are empty.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from trainkit.analysis import grouping
from trainkit.analysis.candidates import Candidate, Spread, split_by_cache, spread_of, values_of
from trainkit.analysis.comparison import Comparison, Group
from trainkit.config.settings import typed_value
from trainkit.report.figures import median_of
from trainkit.results.columns import OverRepeats, Section, columns, headings
from trainkit.results.row import Row
from trainkit.stats import Ratio

SIGNIFICANT = 9  # digits: the last ones of a logarithm depend on the processor
ALWAYS = ("kind", "model", "data", "data.batch_size", "world_size", "amp.precision")  # settings, also if all are equal
RANGED = ("step_time_ms", "compile_time_s", "samples_per_s")  # with the lowest and the highest repeat

CsvLine = Mapping[str, Any]  # a value by the name of its column


def csv_comparison(comparison: Comparison) -> str:
    """A line for each setting of each group, shortest step first, then one for each setting that was dropped, with the
    reason. Columns without any value are left out, apart from those that identify a setting."""
    names = _setting_names(comparison)
    lines = []
    for group in comparison.groups:
        for candidate in group.candidates:
            lines.append(_candidate_line(group, candidate, names))
    for dropped in comparison.dropped:
        identity = {"setting": dropped.label, "num_repeats": len(dropped.rows), "dropped": dropped.reason}
        lines.append(_settings(dropped.rows[0], names) | identity)
    return _text(lines, ["setting", *names])


def _setting_names(comparison: Comparison) -> list[str]:
    """The settings that identify a line: ALWAYS, and those that differ between any two."""
    rows = []
    for group in comparison.groups:
        for candidate in group.candidates:
            rows.append(candidate.rows[0])
    rows += [dropped.rows[0] for dropped in comparison.dropped]
    return list(dict.fromkeys([*ALWAYS, *grouping.varying_names(rows)]))


def _settings(row: Row, names: Sequence[str]) -> dict[str, Any]:
    requested = grouping.requested(row)
    settings: dict[str, Any] = dict.fromkeys(names)
    for name in names:
        if name in requested:
            settings[name] = grouping.value_text(name, requested[name])
    return settings


def _candidate_line(group: Group, candidate: Candidate, names: Sequence[str]) -> CsvLine:
    line = {"setting": candidate.label} | _settings(candidate.rows[0], names)
    line |= {"num_repeats": candidate.num_repeats, "num_failed": candidate.num_failed}
    line |= _spread_columns("step_time_ms", candidate.step_time_ms)
    line |= _speedup_columns(candidate.speedup)
    for name, value in _measured(candidate.rows).items():
        line.setdefault(name, value)
    line["metric_name"] = getattr(candidate.metric, "name", None)
    line["warm_compile_time_s"] = median_of(candidate.warm_compile_time_s)
    line["break_even_steps"] = getattr(candidate.break_even, "num_steps", None)
    line["total_time_s"] = candidate.total_time_s
    line["recommended"] = candidate is group.recommended
    return line | group.machine


def _speedup_columns(speedup: Ratio | None) -> dict[str, Any]:
    """The speed-up over eager with its 95 % interval."""
    names = {"speedup": "value", "speedup_low": "low", "speedup_high": "high", "speedup_measurable": "measurable"}
    return {name: getattr(speedup, attribute, None) for name, attribute in names.items()}


def _measured(rows: Sequence[Row]) -> dict[str, Any]:
    """The columns of a row, each reduced over the repeats as it says. Compile times are of the coldest caches."""
    coldest, _ = split_by_cache(rows)
    compiler = headings(Row, Section.COMPILER)
    measured: dict[str, Any] = {}
    for name, column in columns(Row).items():
        repeats = coldest if name.startswith("compile_") else rows
        values = values_of(repeats, name)
        if column.over_repeats is OverRepeats.LARGEST:
            measured[name] = max(values, default=None)
        elif name in RANGED:
            measured |= _spread_columns(name, spread_of(values))
        elif column.over_repeats is OverRepeats.MEDIAN:
            measured[name] = median_of(spread_of(values))
        elif name in compiler:
            measured[name] = _shared(values)
    return measured


def _shared(values: Sequence[Any]) -> Any:
    """The value that all repeats have; None if they differ."""
    if len(set(values)) != 1:
        return None
    return values[0]


def _spread_columns(name: str, spread: Spread | None) -> dict[str, Any]:
    """The median over the repeats, the lowest and the highest."""
    names = {name: "median", f"{name}_low": "low", f"{name}_high": "high"}
    return {name: getattr(spread, attribute, None) for name, attribute in names.items()}


def _text(lines: Sequence[CsvLine], identifying: Iterable[str]) -> str:
    names: dict[str, None] = {}  # as a set that keeps its order
    filled = set(identifying)
    for line in lines:
        names |= dict.fromkeys(line)
        filled.update(name for name, value in line.items() if value is not None)
    header = [name for name in names if name in filled]
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for line in lines:
        writer.writerow([_cell(line.get(name)) for name in header])
    return file.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.{SIGNIFICANT}g}"
    return typed_value(value)
