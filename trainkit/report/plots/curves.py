"""Plots of losses and the metric over epochs."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from matplotlib import rc_context

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Group
from trainkit.formatting import fixed
from trainkit.report.figures import direction_text
from trainkit.report.plots.axes import curve_axes
from trainkit.report.plots.palette import STYLE, Looks
from trainkit.report.plots.svg import Plot, figure_svg, plot_description
from trainkit.results.epoch import EpochRecord
from trainkit.results.metric import metric_of

METRIC = "val_metric"
CURVES = {"train_loss": "Training loss", "val_loss": "Validation loss", METRIC: "Validation metric"}

Epochs = Mapping[str, Sequence[EpochRecord]]  # by the run_id of a row
Curve = dict[int, float]  # a value by the number of its epoch, counted from 1


@rc_context(STYLE)
def plot_curve(group: Group, looks: Looks, epochs: Epochs, column: str, name: str) -> Plot | None:
    """A column of the epoch records; None if no record has it.

    A line is the median over the repeats of a setting, thin lines are the repeats.
    """
    figure, axes = curve_axes("epoch", "", num_ticks=8)
    keys = []
    for candidate in group.candidates:
        repeats = _repeat_curves(candidate, epochs, column)
        if not repeats:
            continue
        look = looks[candidate.label]
        if len(repeats) > 1:
            for curve in repeats:
                axes.plot(list(curve), list(curve.values()), color=look.color, linewidth=0.7, alpha=0.45)
        middle = _median_curve(repeats)
        numbers, medians = list(middle), list(middle.values())
        axes.plot(numbers, medians, color=look.color, linestyle=look.line, linewidth=1.8)
        axes.plot(numbers[-1:], medians[-1:], "o", color=look.color, markersize=4.5)
        keys.append((candidate.label, fixed(medians[-1], 4)))
    if not keys:
        return None
    repeated = any(candidate.num_repeats > 1 for candidate in group.candidates)
    note = "Median of the repeats; thin lines: each of them." if repeated else ""
    title = CURVES[column]
    if column == METRIC:
        title = _metric_title(group)
    description = plot_description(f"{title} after the last epoch", keys)
    return Plot(title, figure_svg(figure, name, description), note, tuple(keys))


def _metric_title(group: Group) -> str:
    """`Validation accuracy`; of other metrics with their direction. Rows of one group have one metric."""
    for candidate in group.candidates:
        metric = candidate.metric
        if metric is None:
            continue
        title = f"Validation {metric.name}"
        return title if metric.is_share else f"{title}, {direction_text(metric.higher_is_better)}"
    return CURVES[METRIC]


def _repeat_curves(candidate: Candidate, epochs: Epochs, column: str) -> list[Curve]:
    curves = []
    for row in candidate.rows:
        curve = _curve(epochs.get(row.run_id, ()), column)
        if curve:
            curves.append(curve)
    return curves


def _curve(records: Iterable[EpochRecord], column: str) -> Curve:
    curve = {}
    for record in records:
        value = getattr(record, column)
        if column == METRIC:
            metric = metric_of(record)
            value = metric.value if metric is not None else None
        if value is not None:
            curve[record.epoch + 1] = value
    return curve


def _median_curve(curves: Sequence[Curve]) -> Curve:
    values: dict[int, list[float]] = {}
    for curve in curves:
        for number, value in curve.items():
            values.setdefault(number, []).append(value)
    return {number: median(values[number]) for number in sorted(values)}
