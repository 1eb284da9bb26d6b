"""The plot of samples a second over the batch size."""

from matplotlib import rc_context

from trainkit.formatting import decimals, fixed
from trainkit.report.plots.axes import LegendEntry, add_legend, curve_axes, set_number_scale
from trainkit.report.plots.palette import STYLE, Looks
from trainkit.report.plots.series import Series, ranked_labels
from trainkit.report.plots.svg import Plot, figure_svg, plot_description
from trainkit.report.throughput import BATCH_SIZE, rates_over, throughput_title


@rc_context(STYLE)
def plot_throughput(series: Series, looks: Looks, name: str) -> Plot | None:
    """The samples a second of each setting over the batch size, medians and ranges of the repeats; None without any."""
    rates = rates_over(series)
    curves = {label: rates[label] for label in ranked_labels(series) if label in rates}
    if not curves:
        return None
    figure, axes = curve_axes(BATCH_SIZE, "samples/s", num_ticks=7, head=len(curves) + 1)
    set_number_scale(axes, [number for number, _ in series.groups])
    legend, keys, top = [], [], 0.0
    for label, curve in curves.items():
        look, numbers = looks[label], list(curve)
        medians = [rate.median for rate in curve.values()]
        axes.plot(numbers, medians, "o", color=look.color, linestyle=look.line, linewidth=1.8, markersize=4.5)
        axes.vlines(numbers, [rate.low for rate in curve.values()], [rate.high for rate in curve.values()], look.color)
        top = max(top, *(rate.high for rate in curve.values()))
        legend.append(LegendEntry(look.color, label))
        highest = max(medians)
        keys.append((label, f"up to {fixed(highest, decimals([highest], 3))}"))
    axes.set_ylim(0, 1.05 * top)
    add_legend(axes, legend, num_columns=1, up=1)  # a file has no key beside it
    title = throughput_title(series)
    note = "Medians of the repeats; bars are their ranges."
    return Plot(title, figure_svg(figure, name, plot_description(title, keys)), note, tuple(keys))
