"""The comparison as one HTML page that loads nothing from elsewhere and runs no script.

The templates escape every text, after `clean`; the page's own styles, svg.py's elements and `wrapping_label` alone are
marked safe.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from trainkit.analysis.comparison import Comparison, Group
from trainkit.analysis.dropping import Dropped
from trainkit.analysis.scaling import Scaling
from trainkit.diagnosis.findings import Diagnosis
from trainkit.formatting import clean, short
from trainkit.report.columns import Cell, TableColumn, comparison_columns
from trainkit.report.diagnosis_labels import (
    LINE_TITLES,
    device_use,
    diagnosis_title,
    finding_counts,
    finding_lines,
    finding_location,
    finding_title,
    line_table,
    phase_facts,
    phase_rows,
    rounds_note,
    stage_table,
)
from trainkit.report.labels import Heading, dropped_title, headings, machine_label, run_count
from trainkit.report.markdown import markdown_comparison
from trainkit.report.notes import comparison_notes
from trainkit.report.page_tables import GroupFacts, SettingTable, group_facts
from trainkit.report.plots.costs import plot_compile_time, plot_memory, plot_step_parts
from trainkit.report.plots.curves import CURVES, Epochs, plot_curve
from trainkit.report.plots.palette import COLORS, Looks, looks_of
from trainkit.report.plots.ratios import plot_efficiency, plot_speedups
from trainkit.report.plots.svg import Plot
from trainkit.report.plots.throughput import plot_throughput
from trainkit.report.plots.time_to_step import plot_time_to_step
from trainkit.report.recommendations import recommendation
from trainkit.report.scaling import scaling_columns, scaling_notes, scaling_sentences, scaling_title
from trainkit.report.throughput import throughput_series
from trainkit.report.two_sweeps import TwoSweeps
from trainkit.report.verdicts import verdict

MAX_PLOTTED_GROUPS = 4  # a page of hundreds of plots takes long to make and to read


def _clean_text(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean(value)
    return value


@functools.cache
def wrapping_label(label: str) -> Markup:
    """The label as HTML. A line ends between its settings; a setting wider than a line is broken after a dot, a slash,
    an underscore or an equals sign, but within no number."""
    settings = []
    for setting in re.split("(?<=,) ", clean(label)):
        settings.append(re.sub(r"(?<=[._=/])(?=[^\W\d])", "<wbr>", str(escape(setting))))
    if len(settings) == 1:
        return Markup(settings[0])
    return Markup(" ".join(f"<span>{setting}</span>" for setting in settings))


def template_environment() -> Environment:
    """Templates whose outputs are cleaned, then escaped."""
    environment = Environment(
        loader=PackageLoader("trainkit.report"),
        autoescape=True,
        finalize=_clean_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"wrapping": wrapping_label, "short": short}
    environment.globals |= {
        "device_use": device_use,
        "diagnosis_title": diagnosis_title,
        "dropped_title": dropped_title,
        "finding_counts": finding_counts,
        "finding_lines": finding_lines,
        "finding_title": finding_title,
        "line_table": line_table,
        "line_titles": LINE_TITLES,
        "machine_label": machine_label,
        "phase_facts": phase_facts,
        "phase_rows": phase_rows,
        "rounds_note": rounds_note,
        "run_count": run_count,
        "finding_location": finding_location,
        "stage_table": stage_table,
        "whole_reason": _whole_reason,
    }
    return environment


@functools.cache
def _page_template() -> Template:
    return template_environment().get_template("page.html")


def write_report(
    folder: Path | str,
    comparison: Comparison,
    epochs: Epochs,
    diagnoses: Sequence[Diagnosis] = (),
    pair: TwoSweeps | None = None,
) -> tuple[Path, Path]:
    """Write `report.md` and `report.html` into a directory. Returns their paths, in this order."""
    folder = Path(folder)
    markdown, page = folder / "report.md", folder / "report.html"
    markdown.write_text(markdown_comparison(comparison), encoding="utf-8")
    html = html_comparison(comparison, epochs, folder.resolve().name, diagnoses, pair)
    page.write_text(html, encoding="utf-8")
    return markdown, page


def html_comparison(
    comparison: Comparison,
    epochs: Epochs,
    title: str,
    diagnoses: Sequence[Diagnosis] = (),
    pair: TwoSweeps | None = None,
) -> str:
    """The page: two sweeps side by side; scalings; for each group the recommendation and its figures; the diagnoses;
    the rows that were dropped.

    `epochs` are the records of the runs by the `run_id` of their rows. The same input gives the same text. Groups after
    the first MAX_PLOTTED_GROUPS have their tables without plots.
    """
    groups = comparison.groups
    looks = looks_of(groups, comparison.scalings)
    notes = comparison_notes(groups)
    sections = []
    for number, (group, heading) in enumerate(zip(groups, headings(groups), strict=True)):
        costs, curves = [], []
        if number < MAX_PLOTTED_GROUPS:
            costs = _cost_plots(group, looks, f"g{number}")
            curves = _curve_plots(group, looks, epochs, f"g{number}")
        sections.append(_group_section(group, heading, notes.by_group[number], costs, curves))
    scalings = []
    for number, scaling in enumerate(comparison.scalings):
        scalings.append(_scaling_section(scaling, looks, f"s{number}"))
    throughputs = []
    for number, series in enumerate(throughput_series(groups)):
        throughputs.append(plot_throughput(series, looks, f"t{number}"))
    return _page_template().render(
        title=title,
        colors=COLORS,
        looks=looks,
        pair=pair,
        throughputs=[plot for plot in throughputs if plot is not None],
        scalings=scalings,
        sections=sections,
        num_plotted=MAX_PLOTTED_GROUPS,
        notes=notes.shared,
        diagnoses=diagnoses,
        comparison=comparison,
    )


@dataclass(frozen=True)
class GroupSection:
    """A group on the page; group.html shows the fields in this order."""

    heading: Heading
    recommendation: str
    verdicts: dict[str, str]  # by label
    notes: list[str]
    ranking: SettingTable
    costs: list[Plot]
    curves: list[Plot]
    facts: GroupFacts


@dataclass(frozen=True)
class ScalingSection:
    """A scaling on the page; scaling.html shows the fields in this order."""

    title: str
    sentences: list[str]
    table: SettingTable
    notes: list[str]
    plots: list[Plot]


def _scaling_section(scaling: Scaling, looks: Looks, name: str) -> ScalingSection:
    """`name` makes the ids of the plot unique in a page."""
    labels = [point.label for point in scaling.points]
    plots = []
    efficiency_plot = plot_efficiency(scaling, looks, name)
    if efficiency_plot is not None:
        plots.append(efficiency_plot)
    return ScalingSection(
        title=scaling_title(scaling),
        sentences=scaling_sentences(scaling),
        table=_settings_table(labels, scaling_columns(scaling)),
        notes=scaling_notes(scaling),
        plots=plots,
    )


def _settings_table(labels: Iterable[str], columns: Iterable[TableColumn]) -> SettingTable:
    titles = []
    lines: list[tuple[str, list[Cell]]] = [(label, []) for label in labels]
    for column in columns:
        titles.append(column.title)
        for (_, cells), cell in zip(lines, column.cells, strict=True):
            cells.append(cell)
    return SettingTable("", titles, lines)


def _group_section(
    group: Group, heading: Heading, notes: list[str], costs: list[Plot], curves: list[Plot]
) -> GroupSection:
    labels = [candidate.label for candidate in group.candidates]
    return GroupSection(
        heading=heading,
        recommendation=recommendation(group),
        verdicts={candidate.label: verdict(candidate, group) for candidate in group.candidates},
        notes=notes,
        ranking=_settings_table(labels, comparison_columns(group.candidates)),
        costs=costs,
        curves=curves,
        facts=group_facts(group),
    )


def _cost_plots(group: Group, looks: Looks, name: str) -> list[Plot]:
    """Gains and costs of the settings; `name` makes the ids unique in a page."""
    plots = [
        plot_speedups(group, looks, f"{name}-speedup"),
        plot_time_to_step(group, looks, f"{name}-steps"),
        plot_memory(group, looks, f"{name}-memory"),
        plot_compile_time(group, f"{name}-compile"),
        plot_step_parts(group, f"{name}-breakdown"),
    ]
    return [plot for plot in plots if plot is not None]


def _curve_plots(group: Group, looks: Looks, epochs: Epochs, name: str) -> list[Plot]:
    plots = []
    for column in CURVES:
        plot = plot_curve(group, looks, epochs, column, f"{name}-{column}")
        if plot is not None:
            plots.append(plot)
    return plots


def _whole_reason(dropped: Dropped) -> str:
    """The distinct errors of the dropped rows, or the reason if they have none."""
    errors: dict[str, None] = {}
    for row in dropped.rows:
        if row.error and row.status != "ok":
            errors[row.error] = None
    return "\n\n".join(errors) or dropped.reason
