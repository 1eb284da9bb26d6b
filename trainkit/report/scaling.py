"""Scaling in tables and sentences: the same work on several GPUs, or in several processes of a CPU."""

from collections.abc import Sequence

from trainkit.analysis.candidates import Spread, spread_of, values_of
from trainkit.analysis.scaling import Scaling, ScalingPoint, indistinguishable
from trainkit.formatting import clean, fixed
from trainkit.report.columns import Cell, TableColumn, spread_column, time_cells
from trainkit.report.labels import several_machines, several_versions
from trainkit.stats import Ratio

NOTE = (
    "Efficiency: samples a second per {device} over those with {fewest}, by step times; of the same setting, and of "
    "the best setting of the same precision."
)
WORK_NOTE = (
    "Work: the time of a step in which the {device} did other work than communicate, from a profiled window of steps "
    "after the training."
)
COMMUNICATION_NOTE = (
    "Not hidden: the time of a step in which the {device} did nothing but communicate, from a profiled window of steps "
    "after the training."
)

POWER_NOTE = "Power: the energy of a step over its time, of each {device}."
POWER_LIMIT_NOTE = " At the limit, {limit} W, its clock falls: a step takes longer the more energy it needs."
AT_LIMIT = 0.95  # of the limit; NVML's counter is coarse beside an epoch


def scaling_title(scaling: Scaling) -> str:
    """`Weak scaling: gpt2 on synthetic, batch 16 per GPU, bf16-mixed`."""
    row, device = scaling.row, device_noun(scaling)
    title = f"Weak scaling: {row.model} on {row.data}"
    if scaling.is_strong:
        title = f"Strong scaling: {row.model} on {row.data}, batch {fixed(_whole_batch(scaling), 0)} in all"
    elif row.batch_size is not None:
        title += f", batch {fixed(row.batch_size, 0)} per {device}"
    if scaling.precision:
        title += f", {scaling.precision}"
    return clean(title)


def scaling_columns(scaling: Scaling) -> list[TableColumn]:
    """The columns of a scaling's table. What the GPUs do in a step has columns only if it was measured."""
    points, device = scaling.points, device_noun(scaling)
    counts, batches, runs = [], [], []
    efficiencies, best_efficiencies = [], []
    for point in points:
        counts.append(Cell(fixed(point.num_processes, 0)))
        batches.append(Cell(fixed(point.rows[0].batch_size, 0)))
        efficiencies.append(_efficiency_cell(point.efficiency))
        best_efficiencies.append(_efficiency_cell(point.best_efficiency))
        runs.append(Cell(fixed(len(point.rows), 0)))
    columns = [TableColumn(device_noun(scaling, plural=True), "", counts)]
    if scaling.is_strong:
        columns.append(TableColumn("batch", f"per {device}", batches))
    columns.append(TableColumn("step", "ms", time_cells([point.step_time_ms for point in points])))
    columns.append(spread_column("samples/s", f"per {device}", [point.samples_per_s for point in points]))
    columns.append(TableColumn("efficiency", "same setting", efficiencies))
    columns.append(TableColumn("efficiency", "best setting", best_efficiencies))
    works, exposed = _spreads(points, "compute_ms"), _spreads(points, "exposed_comm_ms")
    if any(works):
        columns.append(spread_column("work", "ms", works))
    if any(exposed):
        columns.append(spread_column("not hidden", "ms", exposed))
    powers = [point.power_w for point in points]
    if any(powers):
        columns.append(spread_column("power", f"W per {device}", powers, digits=0))
    columns.append(TableColumn("runs", "", runs))
    return columns


def _spreads(points: Sequence[ScalingPoint], name: str) -> list[Spread | None]:
    return [spread_of(values_of(point.rows, name)) for point in points]


def scaling_sentences(scaling: Scaling) -> list[str]:
    """A sentence for each number of processes: the best setting, or those that cannot be told apart, and how efficient
    it is."""
    return [clean(_sentence(scaling, count)) for count in scaling.process_counts]


def scaling_notes(scaling: Scaling) -> list[str]:
    """What all settings have in common, and how to read the table."""
    device, fewest = device_noun(scaling), device_count(scaling, scaling.process_counts[0])
    notes = []
    if scaling.overrides:
        notes.append(clean(f"All with {', '.join(scaling.overrides)}."))
    notes.append(NOTE.format(device=device, fewest=fewest))
    notes += several_machines(scaling.rows)
    notes += several_versions(scaling.rows)
    if any(_spreads(scaling.points, "compute_ms")):
        notes.append(WORK_NOTE.format(device=device))
    if any(_spreads(scaling.points, "exposed_comm_ms")):
        notes.append(COMMUNICATION_NOTE.format(device=device))
    if any(point.power_w for point in scaling.points):
        notes.append(POWER_NOTE.format(device=device) + _limit_note(scaling))
    return notes


def _limit_note(scaling: Scaling) -> str:
    """What the limit of power means, if a setting comes up to it."""
    for point in scaling.points:
        limits = values_of(point.rows, "power_limit_w")
        if limits and point.power_w is not None and point.power_w.median >= AT_LIMIT * max(limits):
            return POWER_LIMIT_NOTE.format(limit=fixed(max(limits), 0))
    return ""


def device_noun(scaling: Scaling, plural: bool = False) -> str:
    """`GPU`, or `process` on a CPU."""
    on_gpu = scaling.row.accelerator == "gpu"
    if plural:
        return "GPUs" if on_gpu else "processes"
    return "GPU" if on_gpu else "process"


def device_count(scaling: Scaling, count: int) -> str:
    """`1 GPU`, `2 GPUs`, `2 processes`."""
    return f"{fixed(count, 0)} {device_noun(scaling, plural=count > 1)}"


def efficiency_text(efficiency: Ratio | None) -> str:
    """An efficiency, with its interval if it is known: `0.912 [0.905, 0.919]`."""
    cell = _efficiency_cell(efficiency)
    if not cell.range:
        return cell.text
    return f"{cell.text} [{cell.range.replace('-', ', ')}]"


def efficiency_curves(scaling: Scaling) -> dict[str, dict[float, Ratio]]:
    """The efficiencies of each setting by number of processes, from the fewest on. A setting that was measured with the
    fewest alone is a curve of one point."""
    fewest = scaling.process_counts[0]
    bases: dict[str, Ratio] = {}
    curves: dict[str, dict[float, Ratio]] = {}
    continued = set()
    for point in scaling.points:
        if point.best_efficiency is not None and point.num_processes == fewest:
            bases[point.label] = point.best_efficiency
    for point in scaling.points:
        if point.best_efficiency is None or point.base_label is None or point.num_processes == fewest:
            continue
        curve = curves.setdefault(point.label, {fewest: bases[point.base_label]})
        curve[point.num_processes] = point.best_efficiency
        continued.add(point.base_label)
    for label, efficiency in bases.items():
        if label not in continued:
            curves[label] = {fewest: efficiency}
    return curves


def _sentence(scaling: Scaling, count: int) -> str:
    points = scaling.points_with(count)
    best, hint = points[0], ""
    claim = f"{best.label} ({_step_text(best, 'ms a step')})"
    rivals = indistinguishable(points)
    if len(points) == 1:
        claim += " alone was measured"
    elif any(len(point.rows) < 2 for point in points):
        claim += " has the shortest step"
        hint = "; one run of a setting does not show which is best"
    elif rivals:
        names = ", ".join(f"{point.label} ({_step_text(point, 'ms')})" for point in rivals)
        claim += f" cannot be told from {names}"
    else:
        claim += " is best"
    efficiency = ""
    if count != scaling.process_counts[0]:
        efficiency = _efficiency_clause(scaling, best)
    return f"With {device_count(scaling, count)} {claim}{efficiency}{hint}."


def _efficiency_clause(scaling: Scaling, best: ScalingPoint) -> str:
    fewest = device_count(scaling, scaling.process_counts[0])
    if best.best_efficiency is None:
        return f"; not measured with {fewest}, so it has no efficiency"
    return f": efficiency {efficiency_text(best.best_efficiency)} of the best with {fewest}"


def _step_text(point: ScalingPoint, unit: str) -> str:
    """The median of the repeats, and their range: `22.01 ms, 21.99-28.54`."""
    (cell,) = time_cells([point.step_time_ms])
    if not cell.range:
        return f"{cell.text} {unit}"
    return f"{cell.text} {unit}, {cell.range}"


def _efficiency_cell(efficiency: Ratio | None) -> Cell:
    if efficiency is None:
        return Cell("-")
    text = _efficiency_figure(efficiency.value)
    if efficiency.low is None or efficiency.high is None or efficiency.low == efficiency.high:
        return Cell(text)
    return Cell(text, f"{_efficiency_figure(efficiency.low)}-{_efficiency_figure(efficiency.high)}")


def _efficiency_figure(value: float) -> str:
    if value >= 10:  # an interval of two repeats that differ widely
        return "10+"
    return fixed(value, 3)


def _whole_batch(scaling: Scaling) -> int:
    return (scaling.row.batch_size or 0) * scaling.row.world_size
