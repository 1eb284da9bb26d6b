"""Samples a second over the batch size, where a sweep has several."""

from collections.abc import Sequence

from trainkit.analysis.candidates import Spread
from trainkit.analysis.comparison import Group
from trainkit.formatting import clean, fixed
from trainkit.report.columns import spread_cells
from trainkit.report.plots.series import Series, series_of

BATCH_SIZE = "data.batch_size"


def throughput_series(groups: Sequence[Group]) -> list[Series]:
    """The groups over their batch sizes; empty if there are less than three."""
    return series_of(groups, BATCH_SIZE)


def rates_over(series: Series) -> dict[str, dict[float, Spread]]:
    """The samples a second of each setting by batch size."""
    rates: dict[str, dict[float, Spread]] = {}
    for number, group in series.groups:
        for candidate in group.candidates:
            if candidate.samples_per_s is not None:
                rates.setdefault(candidate.label, {})[number] = candidate.samples_per_s
    return rates


def throughput_title(series: Series) -> str:
    title = f"Samples a second by {BATCH_SIZE}"
    if series.condition:
        title += f", {series.condition}"
    return title


def throughput_lines(groups: Sequence[Group]) -> list[str]:
    """A line for each setting: the median of its repeats at each batch size, and their range."""
    lines = []
    for series in throughput_series(groups):
        for label, rates in rates_over(series).items():
            texts = []
            for number, rate in rates.items():
                (cell,) = spread_cells([rate])
                texts.append(f"{cell.inline} at {fixed(number, 0)}")
            lines.append(clean(f"{throughput_title(series)}: {label}: {', '.join(texts)}"))
    return lines
