"""Plots of costs: the time to reach a step, peak memory, compile time, the parts of a step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from matplotlib import rc_context

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Group
from trainkit.formatting import decimals, fixed, memory_unit, seconds
from trainkit.report.figures import median_of
from trainkit.report.labels import step_noun
from trainkit.report.plots.axes import BAR, LegendEntry, add_legend, curve_axes, labelled_rows
from trainkit.report.plots.palette import INK, MUTED, SHADES, STYLE, Looks
from trainkit.report.plots.svg import Plot, figure_svg, plot_description
from trainkit.report.verdicts import break_even_steps
from trainkit.results.columns import Section, headings
from trainkit.results.row import Row

STEP_PARTS = ("forward", "backward", "optimizer")
COMPILE_PHASES = headings(Row, Section.COMPILE_TIME)
PART_COLORS = dict(zip(COMPILE_PHASES.values(), SHADES, strict=True)) | {"optimizer": SHADES[3]}
MINUTES_FROM_S = 300  # longer axes are in minutes
FAR_CROSSING = 8  # times the first break-even: crossings beyond it are left to the text
# Opacity of a bar's layers, each drawn over the one before it, and of their squares in the legend.
MEMORY_LAYERS = (0.25, 0.45, 1.0)
MEMORY_LEGEND = [
    LegendEntry(INK, "allocated", 1.0),
    LegendEntry(INK, "reserved", 0.59),
    LegendEntry(INK, "device", 0.25),
]


@rc_context(STYLE)
def plot_time_to_step(group: Group, looks: Looks, name: str) -> Plot | None:
    """Compile time + steps against steps; None without compile times. Compiling pays where a curve crosses eager's."""
    compile_times_s = _compile_times_s(group)
    candidates = [candidate for candidate in group.candidates if candidate.label in compile_times_s]
    if not candidates:
        return None
    last_step = _last_step(group)
    highest_s = _highest_time_s(candidates, compile_times_s, last_step)
    unit, unit_s = ("minutes", 60.0) if highest_s >= MINUTES_FROM_S else ("seconds", 1.0)
    step = step_noun(group)
    figure, axes = curve_axes("calls" if step == "call" else "training steps", unit, num_ticks=5)
    keys = []
    for candidate in candidates:
        look, pays = looks[candidate.label], candidate.break_even
        cost_s = compile_times_s[candidate.label]
        ends = [cost_s / unit_s, _time_s(candidate, cost_s, last_step) / unit_s]
        axes.plot([0, last_step], ends, color=look.color, linestyle=look.line, linewidth=1.8)
        if pays is not None and pays.num_steps <= last_step:
            crossing = _time_s(candidate, cost_s, pays.num_steps) / unit_s
            axes.plot([pays.num_steps], [crossing], "o", color=look.color, markersize=6.5, zorder=3)
        keys.append((candidate.label, "" if pays is None else f"pays off after {break_even_steps(pays, step)}"))
    note = "Compile time included."
    if any(pays for _, pays in keys):
        note += " From its dot on a setting is ahead of eager."
    if group.num_planned_steps is not None and group.num_planned_steps <= last_step:
        axes.axvline(group.num_planned_steps, color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
        note += f" Dashed: the {fixed(group.num_planned_steps, 0)} {step}s planned."
    axes.set_xlim(0, last_step)
    axes.set_ylim(0, highest_s / unit_s)
    above = [candidate.label for candidate in candidates if compile_times_s[candidate.label] > highest_s]
    if above:
        note += f" Above the plot: {', '.join(above)}."
    title = f"Time to reach a {step}"
    return Plot(title, figure_svg(figure, name, plot_description(title, keys)), note, tuple(keys))


def _compile_times_s(group: Group) -> dict[str, float]:
    """The compile time of each setting, 0 for eager; without the settings that do not know theirs."""
    times_s = {}
    for candidate in group.candidates:
        time_s = 0.0 if candidate.is_eager else median_of(candidate.compile_time_s)
        if time_s is not None:
            times_s[candidate.label] = time_s
    return times_s


def _time_s(candidate: Candidate, compile_time_s: float, num_steps: int) -> float:
    return compile_time_s + num_steps * candidate.step_time_ms.median / 1e3


def _highest_time_s(candidates: Sequence[Candidate], compile_times_s: dict[str, float], last_step: int) -> float:
    """The upper end of the axis. A setting that pays later than the last step, or never, may run out of the axes."""
    near, every = [], []
    for candidate in candidates:
        time_s = _time_s(candidate, compile_times_s[candidate.label], last_step)
        every.append(time_s)
        pays = candidate.break_even
        if candidate.is_eager or (pays is not None and pays.num_steps <= last_step):
            near.append(time_s)
    return 1.4 * max(near or every)


def _last_step(group: Group) -> int:
    """A number of steps at which the crossings can be told apart; the text names a crossing far behind the first."""
    crossings = [candidate.break_even.num_steps for candidate in group.candidates if candidate.break_even is not None]
    planned = group.num_planned_steps or 0
    if not crossings:
        num_steps = [row.num_steps for row in chain.from_iterable(candidate.rows for candidate in group.candidates)]
        return max(1, planned, *num_steps)
    furthest = FAR_CROSSING * max(min(crossings), 1)
    shown = [step for step in (*crossings, planned) if step <= furthest]
    return math.ceil(1.25 * max(1, *shown))


@dataclass(frozen=True)
class _MemoryBar:
    """Peaks of a setting in one unit; None is unknown. `layers` are of the device, reserved and allocated."""

    layers: tuple[float | None, float | None, float | None]
    compiling: float

    def texts(self, digits: int, single: bool) -> str:
        shown = self.layers[:1] if single else self.layers[::-1]
        return " / ".join(fixed(value, digits) for value in shown)


@rc_context(STYLE)
def plot_memory(group: Group, looks: Looks, name: str) -> Plot | None:
    """Peaks of the steady steps as one bar in three shades; a diamond is the device's peak while compiling.

    None if no row knows its peaks.
    """
    unit, bars = _memory_bars(group.candidates)
    values = list(chain.from_iterable(bar.layers for bar in bars))
    if not any(values):
        return None
    digits = decimals(values, 3)
    single = all(len(set(bar.layers)) == 1 for bar in bars)  # on a CPU all three are the resident memory
    entries = []
    for candidate, bar in zip(group.candidates, bars, strict=True):
        entries.append((candidate.label, bar.texts(digits, single)))
    rows = labelled_rows(entries, head=0 if single else 1)
    for y, candidate, bar in zip(rows.ys, group.candidates, bars, strict=True):
        for value, alpha in zip(bar.layers, MEMORY_LAYERS, strict=True):
            rows.axes.barh(y, value or 0, BAR, color=looks[candidate.label].color, alpha=alpha, linewidth=0)
        if bar.compiling:
            rows.axes.plot([bar.compiling], [y], "D", color=INK, markersize=5)
    rows.axes.set_xlim(left=0)
    rows.axes.set_xlabel(unit)
    if not single:
        add_legend(rows.axes, MEMORY_LEGEND)
    note = f"Highest of the {step_noun(group)}s in which nothing compiled."
    if any(bar.compiling for bar in bars):
        note += " Diamond: device, while compiling."
    title = "Peak memory"
    return Plot(title, figure_svg(rows.figure, name, plot_description(f"{title} in {unit}", entries)), note)


def _memory_bars(candidates: Sequence[Candidate]) -> tuple[str, list[_MemoryBar]]:
    """The unit, and a bar for each setting in it."""
    peaks, compiling = [], []
    for candidate in candidates:
        peaks.append((candidate.peak_device_bytes, candidate.peak_reserved_bytes, candidate.peak_allocated_bytes))
        compiling.append(max(row.compile_peak_device_bytes or 0 for row in candidate.rows))
    unit, unit_bytes = memory_unit([*chain.from_iterable(peaks), *compiling])
    bars = []
    for (device, reserved, allocated), compiling_bytes in zip(peaks, compiling, strict=True):
        layers = (_in_unit(device, unit_bytes), _in_unit(reserved, unit_bytes), _in_unit(allocated, unit_bytes))
        bars.append(_MemoryBar(layers, compiling_bytes / unit_bytes))
    return unit, bars


def _in_unit(num_bytes: int | None, unit_bytes: int) -> float | None:
    return None if num_bytes is None else num_bytes / unit_bytes


@rc_context(STYLE)
def plot_compile_time(group: Group, name: str, condition: str = "") -> Plot | None:
    """The seconds of each phase of compiling, for all settings that compiled; None if none did.

    `condition` tells the group from others.
    """
    entries, stacks = [], []
    for candidate in group.candidates:
        if candidate.is_eager or candidate.compile_time_s is None:
            continue
        text = seconds(candidate.compile_time_s.median)
        warm_s = median_of(candidate.warm_compile_time_s)
        if warm_s:
            text += f", warm {seconds(warm_s)}"
        entries.append((candidate.label, text))
        phases_s = candidate.compile_parts_s
        stacks.append({label: phases_s.get(phase, 0.0) for phase, label in COMPILE_PHASES.items()})
    has_startup = any(stack["start-up"] for stack in stacks)
    note = "Start-up is paid once a process and is not in the sum." if has_startup else ""
    title = f"Compile time, {condition}" if condition else "Compile time"
    return _plot_stacks(_Stacks(title, "seconds", note, entries, stacks), name)


@rc_context(STYLE)
def plot_step_parts(group: Group, name: str) -> Plot | None:
    """Forward, backward and optimizer of a step, for all settings with a profiling epoch; None if none has one."""
    labels, stacks = [], []
    for candidate in group.candidates:
        parts_ms = _step_parts_ms(candidate)
        if parts_ms:
            labels.append(candidate.label)
            stacks.append(parts_ms)
    sums_ms = [sum(parts_ms.values()) for parts_ms in stacks]
    digits = decimals(sums_ms, 3)
    entries = [(label, f"{fixed(sum_ms, digits)} ms") for label, sum_ms in zip(labels, sums_ms, strict=True)]
    return _plot_stacks(_Stacks("Where a step's time goes", "ms", "From the profiling epoch.", entries, stacks), name)


def _step_parts_ms(candidate: Candidate) -> dict[str, float]:
    """Medians over the repeats; empty if a part is unknown."""
    parts_ms = {}
    for part in STEP_PARTS:
        times_ms = [getattr(row, f"{part}_time_ms_p50") for row in candidate.rows]
        measured = [time_ms for time_ms in times_ms if time_ms is not None]
        if not measured:
            return {}
        parts_ms[part] = median(measured)
    return parts_ms


@dataclass(frozen=True)
class _Stacks:
    """Bars of several parts: a (label, figure) and the length of each part, for each bar."""

    title: str
    unit: str
    note: str
    entries: list[tuple[str, str]]
    stacks: list[dict[str, float]]

    @property
    def parts(self) -> list[str]:
        """The parts that are in any bar."""
        if not self.stacks:
            return []
        return [part for part in self.stacks[0] if any(stack[part] for stack in self.stacks)]


def _plot_stacks(bars: _Stacks, name: str) -> Plot | None:
    if not bars.parts:
        return None
    rows = labelled_rows(bars.entries, head=math.ceil(len(bars.parts) / 3))
    for y, stack in zip(rows.ys, bars.stacks, strict=True):
        left = 0.0
        for part in bars.parts:
            rows.axes.barh(y, stack[part], BAR, left=left, color=PART_COLORS[part], linewidth=0)
            left += stack[part]
    rows.axes.set_xlim(left=0)
    rows.axes.set_xlabel(bars.unit)
    add_legend(rows.axes, [LegendEntry(PART_COLORS[part], part) for part in bars.parts])
    return Plot(bars.title, figure_svg(rows.figure, name, plot_description(bars.title, bars.entries)), bars.note)
