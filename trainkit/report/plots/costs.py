"""Plots of costs: peak memory, compile time, the parts of a step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from matplotlib import rc_context

from trainkit.analysis.candidates import Candidate, values_of
from trainkit.analysis.comparison import Group
from trainkit.formatting import decimals, fixed, in_one_unit, seconds, time_decimals
from trainkit.report.figures import median_of
from trainkit.report.labels import step_noun
from trainkit.report.plots.axes import BAR, LegendEntry, add_legend, labelled_rows
from trainkit.report.plots.palette import INK, SHADES, STYLE, Looks
from trainkit.report.plots.svg import Plot, figure_svg, plot_description
from trainkit.results.columns import Section, headings
from trainkit.results.row import Row

STEP_PARTS = ("forward", "backward", "optimizer")
COMPILE_PHASES = headings(Row, Section.COMPILE_TIME)
PART_COLORS = dict(zip(COMPILE_PHASES.values(), SHADES, strict=True)) | {"optimizer": SHADES[3]}
# Opacity of a bar's layers, each drawn over the one before it, and of their squares in the legend.
MEMORY_LAYERS = (0.25, 0.45, 1.0)
MEMORY_LEGEND = [
    LegendEntry(INK, "allocated", 1.0),
    LegendEntry(INK, "reserved", 0.59),
    LegendEntry(INK, "device", 0.25),
]


@dataclass(frozen=True)
class _MemoryBar:
    """Peaks of a setting in one unit; None is unknown. `compiling` is the device's, 0 if it is unknown."""

    device: float | None
    reserved: float | None
    allocated: float | None
    compiling: float

    @property
    def layers(self) -> list[float | None]:
        return [self.device, self.reserved, self.allocated]

    @property
    def is_single(self) -> bool:
        """True on a CPU: all three are the resident memory."""
        return self.device == self.reserved == self.allocated


@rc_context(STYLE)
def plot_memory(group: Group, looks: Looks, name: str) -> Plot | None:
    """Peaks of the steady steps as one bar in three shades; a diamond is the device's peak while compiling.

    None if no row knows its peaks.
    """
    unit, bars = _memory_bars(group.candidates)
    peaks: list[float | None] = []
    for bar in bars:
        peaks += bar.layers
    if not any(peaks):
        return None
    single = all(bar.is_single for bar in bars)
    entries = _memory_entries(group.candidates, bars, decimals(peaks, 3), single)
    num_legend_lines = 0 if single else 1
    rows = labelled_rows(entries, head=num_legend_lines)
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
    peaks: list[int | None] = []  # four of each setting
    for candidate in candidates:
        compiling = max(values_of(candidate.rows, "compile_peak_device_bytes"), default=0)
        peaks += [candidate.peak_device_bytes, candidate.peak_reserved_bytes, candidate.peak_allocated_bytes, compiling]
    unit, values = in_one_unit(peaks)
    bars = []
    for first in range(0, len(values), 4):
        device, reserved, allocated, compiling_in_unit = values[first : first + 4]
        bars.append(_MemoryBar(device, reserved, allocated, compiling_in_unit or 0.0))
    return unit, bars


def _memory_entries(
    candidates: Sequence[Candidate], bars: Sequence[_MemoryBar], digits: int, single: bool
) -> list[tuple[str, str]]:
    entries = []
    for candidate, bar in zip(candidates, bars, strict=True):
        text = fixed(bar.device, digits)
        if not single:
            text = f"{fixed(bar.allocated, digits)} / {fixed(bar.reserved, digits)} / {text}"
        entries.append((candidate.label, text))
    return entries


@rc_context(STYLE)
def plot_compile_time(group: Group, name: str, condition: str = "") -> Plot | None:
    """The seconds of each phase of compiling, for all settings that compiled, the fewest first; None if none did.

    `condition` tells the group from others.
    """
    entries, stacks, note = [], [], ""
    for candidate in sorted(group.compiled, key=_compile_s):
        if candidate.compile_time_s is None:
            continue
        text = seconds(candidate.compile_time_s.median)
        warm_s = median_of(candidate.warm_compile_time_s)
        if warm_s:
            text += f", warm {seconds(warm_s)}"
        entries.append((candidate.label, text))
        phases_s = candidate.compile_parts_s
        stacks.append({label: phases_s.get(phase, 0.0) for phase, label in COMPILE_PHASES.items()})
        if stacks[-1]["start-up"]:
            note = "Start-up is paid once a process and is not in the sum."
    title = f"Compile time, {condition}" if condition else "Compile time"
    return _plot_stacks(_Stacks(title, "seconds", note, entries, stacks), name)


def _compile_s(candidate: Candidate) -> float:
    return median_of(candidate.compile_time_s) or 0.0


@rc_context(STYLE)
def plot_step_parts(group: Group, name: str) -> Plot | None:
    """Forward, backward and optimizer of a step, for all settings with a profiling epoch; None if none has one."""
    stacks, sums_ms = [], {}
    for candidate in group.candidates:
        parts_ms = _step_parts_ms(candidate)
        if parts_ms:
            stacks.append(parts_ms)
            sums_ms[candidate.label] = sum(parts_ms.values())
    digits = time_decimals(sums_ms.values(), 3)
    entries = [(label, f"{fixed(sum_ms, digits)} ms") for label, sum_ms in sums_ms.items()]
    return _plot_stacks(_Stacks("Where a step's time goes", "ms", "From the profiling epoch.", entries, stacks), name)


def _step_parts_ms(candidate: Candidate) -> dict[str, float]:
    """Medians over the repeats; empty if a part is unknown."""
    parts_ms = {}
    for part in STEP_PARTS:
        times_ms = values_of(candidate.rows, f"{part}_time_ms_p50")
        if not times_ms:
            return {}
        parts_ms[part] = median(times_ms)
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
        lengths: dict[str, float] = {}
        for stack in self.stacks:
            for part, length in stack.items():
                lengths[part] = lengths.get(part, 0.0) + length
        return [part for part, length in lengths.items() if length]


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
