"""What the plots of a group show. Each is None where no row of the group has figures for it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from matplotlib import rc_context
from matplotlib.axes import Axes

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Group
from trainkit.analysis.grouping import NUMBER, short_override
from trainkit.analysis.pairs import PairwiseComparison
from trainkit.formatting import clean, decimals, fixed, in_one_unit, percent, seconds
from trainkit.report.figures import factor_text, median_of, ratio_text
from trainkit.report.labels import COMPILE_PARTS, choices, contrast_of, machine_of, step_of
from trainkit.report.svg import (
    BAND,
    BAR,
    DASHES,
    GAP,
    HUES,
    INK,
    MUTED,
    SHADES,
    STYLE,
    Look,
    curve_axes,
    legend,
    moved,
    number_scale,
    ratio_scale,
    rows,
    svg_of,
)
from trainkit.report.verdicts import break_even_steps
from trainkit.results.epoch import EpochRecord
from trainkit.stats import Ratio

INTERVALS = "with 95 % intervals where there are repeats; within its band a difference may be chance"
STEP_PARTS = ("forward", "backward", "optimizer")
INWARDS = {"<": 3.0, ">": -3.0, "v": 3.0, "^": -3.0}  # px from the edge of the axes
CURVES = {"train_loss": "Training loss", "val_loss": "Validation loss", "val_accuracy": "Validation accuracy"}

Looks = Mapping[str, Look]
Epochs = Mapping[str, Sequence[EpochRecord]]


@dataclass(frozen=True)
class Plot:
    """An SVG element, its title, how to read it, and the settings that need a key to it, each with a word."""

    title: str
    svg: str
    note: str = ""
    keys: tuple[tuple[str, str], ...] = ()


def looks_of(groups: Iterable[Group]) -> dict[str, Look]:
    """One look for each label, the same in all groups. Eager is drawn in the colour of the text."""
    settings = {setting.label: setting for group in groups for setting in group.candidates}
    compiled = [label for label, setting in settings.items() if not setting.is_eager]
    eager = [label for label, setting in settings.items() if setting.is_eager]
    rounds = [(label, HUES[n % len(HUES)], n // len(HUES)) for n, label in enumerate(compiled)]
    rounds += [(label, INK, n) for n, label in enumerate(eager)]
    return {label: Look(color, DASHES[n % len(DASHES)]) for label, color, n in rounds}


def costs_of(group: Group, looks: Looks, name: str) -> list[Plot]:
    """What the settings gain and cost; `name` makes the ids unique in a page."""
    drawn = [
        speedups(group, looks, f"{name}-speedup"),
        times_to_step(group, looks, f"{name}-steps"),
        memory(group, looks, f"{name}-memory"),
        compile_cost(group, f"{name}-compile"),
        breakdown(group, f"{name}-breakdown"),
    ]
    return [plot for plot in drawn if plot is not None]


def curves_of(group: Group, looks: Looks, epochs: Epochs, name: str) -> list[Plot]:
    """What the settings learned; `name` makes the ids unique in a page."""
    drawn = [curves(group, looks, epochs, field, f"{name}-{field}") for field in CURVES]
    return [plot for plot in drawn if plot is not None]


@rc_context(STYLE)
def speedups(group: Group, looks: Looks, name: str, beside: str = "") -> Plot | None:
    """Each setting's speed-up over eager. `beside` tells the group from others."""
    title = _title("Speed-up over eager", beside)
    known = [(setting, setting.speedup) for setting in group.candidates if setting.speedup is not None]
    if not known:
        return None
    words = [(setting.label, ratio_text(speedup)) for setting, speedup in known]
    figure, axes, at = rows(words)
    axes.axvline(1, color=MUTED, linewidth=1)
    _intervals(axes, at, [speedup for _, speedup in known], [looks[setting.label].color for setting, _ in known])
    axes.set_xlabel("times as fast as eager")
    return Plot(title, svg_of(figure, name, _listed(title, words)), f"Per {step_of(group)}, {INTERVALS}.")


@dataclass(frozen=True)
class Series:
    """Groups that differ in one number that was asked, `name`, by that number; `beside` tells them from others."""

    name: str
    beside: str
    groups: tuple[tuple[float, Group], ...]


def series_of(groups: Sequence[Group]) -> list[Series]:
    """The groups over the number that takes most values among them; empty where none takes three. A deadline is none:
    what is called is the same before each."""
    works = [_asked(group) for group in groups]
    names = dict.fromkeys(name for work in works for name in work)
    numbers = [name for name in names if name != "forward.deadline_ms"]
    values = {name: {work[name] for work in works if NUMBER.fullmatch(work.get(name, ""))} for name in numbers}
    most = max(values, key=lambda name: len(values[name]), default=None)
    if most is None or len(values[most]) < 3:
        return []
    alike: dict[tuple[str | None, ...], list[tuple[float, Group]]] = {}
    for group, work in zip(groups, works, strict=True):
        if work.get(most) in values[most]:
            beside = tuple(None if name == most else work.get(name) for name in names)
            alike.setdefault(beside, []).append((float(work[most]), group))
    several = [sorted(of, key=lambda one: one[0]) for of in alike.values() if len(of) > 1]
    told = apart([of[0][1] for of in several], but=most)
    return [Series(most, beside, tuple(of)) for beside, of in zip(told, several, strict=True)]


def apart(groups: Sequence[Group], but: str = "") -> list[str]:
    """What tells each group from the others, but for this setting; empty of a single one."""
    works = [_asked(group) for group in groups]
    names = dict.fromkeys(name for work in works for name in work if name != but)
    telling = [name for name in names if len({work.get(name) for work in works}) > 1]
    return [", ".join(short_override(f"{name}={work[name]}") for name in telling if name in work) for work in works]


def _asked(group: Group) -> dict[str, str]:
    """What was asked of all in the group, and where it ran, by the names of the settings."""
    batch_size = {} if group.batch_size is None else {"data.batch_size": str(group.batch_size)}
    precision = {} if group.precision is None else {"amp.precision": group.precision}
    named = {"kind": group.kind, "model": group.model, "data": group.data, **batch_size, **precision}
    words = dict(override.partition("=")[::2] for override in group.overrides)
    return named | {"processes": str(group.world_size), "machine": machine_of(group.machine)} | words


@rc_context(STYLE)
def speedups_over(series: Series, looks: Looks, name: str) -> Plot | None:
    """Each setting's speed-up over eager against the number, with its interval; below the line eager is faster."""
    curves: dict[str, list[tuple[float, Ratio]]] = {}
    for number, group in series.groups:
        for setting in group.candidates:
            if setting.speedup is not None and not setting.is_eager:
                curves.setdefault(setting.label, []).append((number, setting.speedup))
    if not curves:
        return None
    curves = {label: curves[label] for label in looks if label in curves}  # in one order, whichever is faster
    figure, axes = curve_axes(series.name, "times as fast as eager", num_ticks=7, head=len(curves) + 1)
    numbers = [number for number, _ in series.groups]
    number_scale(axes, numbers)
    ratio_scale(axes, "y", *_limits([speedup for known in curves.values() for _, speedup in known]))
    axes.axhline(1, color=MUTED, linewidth=1)
    keys = []
    for n, (label, known) in enumerate(curves.items()):
        look, right = looks[label], 5 * (n - (len(curves) - 1) / 2)  # px: beside each other, not one on the other
        at, values, drawn = [number for number, _ in known], [of.value for _, of in known], moved(axes, right)
        axes.plot(at, values, color=look.color, linestyle=look.line, linewidth=1.8, transform=drawn)
        axes.plot(at, values, "o", color=look.color, markersize=4.5, transform=drawn)
        for number, speedup in known:
            if speedup.low is not None and speedup.high is not None:
                ends = [speedup.low, speedup.high]
                axes.plot([number] * 2, ends, "_-", color=look.color, linewidth=1.2, markersize=6, transform=drawn)
            for edge, arrow in _runs_out(speedup, axes.get_ylim(), "v^"):
                inwards = moved(axes, right, INWARDS[arrow])
                axes.plot([number], [edge], arrow, color=look.color, markersize=5, transform=inwards)
        keys.append((label, f"{factor_text(known[0][1])} to {factor_text(known[-1][1])}"))
    # Beside a file there is no key.
    legend(axes, [(looks[label].color, 1.0, clean(label)) for label in curves], in_line=1, up=1)
    title = f"Speed-up over eager by {series.name}{f', {series.beside}' if series.beside else ''}"
    note = "Per step; bars are 95 % intervals where there are repeats. Above the line compiled steps are shorter."
    return Plot(title, svg_of(figure, name, _listed(title, keys)), note, tuple(keys))


@rc_context(STYLE)
def contrast(pairs: Sequence[PairwiseComparison], name: str) -> Plot | None:
    """What one choice measured over another, for each work that has both, with its interval; None where there is none.
    Of shares both sides, from the lowest to the highest."""
    if not pairs:
        return None
    first = pairs[0]
    if first.of_fraction:
        return _shares(pairs, name)
    ratios = [pair.ratio for pair in pairs if pair.ratio is not None]
    title = contrast_of(first.column, first.choice, first.baseline)
    words = [(_beside(pair), ratio_text(of)) for pair, of in zip(pairs, ratios, strict=True)]
    figure, axes, at = rows(words)
    axes.axvline(1, color=MUTED, linewidth=1)
    _intervals(axes, at, ratios, [HUES[0]] * len(ratios))
    axes.set_xlabel("times as much" if first.column else "times as fast")
    return Plot(title, svg_of(figure, name, _listed(title, words)), f"{INTERVALS.capitalize()}.")


def _shares(pairs: Sequence[PairwiseComparison], name: str) -> Plot:
    first = pairs[0]
    title = contrast_of(first.column, first.choice, first.baseline)
    these, those, _ = choices(first.choice, first.baseline)
    sides = [(HUES[0], 0, these), (MUTED, 1, those)]
    medians = [tuple(percent(median(side)) for side in (pair.choice_values, pair.baseline_values)) for pair in pairs]
    words = [(_beside(pair), " and ".join(both)) for pair, both in zip(pairs, medians, strict=True)]
    figure, axes, at = rows(words, head=2)
    for y, pair in zip(at, pairs, strict=True):
        for color, side, _ in reversed(sides):
            shares = [100 * share for share in (pair.choice_values, pair.baseline_values)[side]]
            axes.plot([min(shares), max(shares)], [y, y], "|-", color=color, linewidth=2.5, markersize=10)
            axes.plot([median(shares)], [y], "o", color=color, markersize=6.5)
    axes.set_xlim(-3, 103)
    legend(axes, [(color, 1.0, label) for color, _, label in sides], in_line=1)
    return Plot(title, svg_of(figure, name, _listed(title, words)), "In percent, from the lowest to the highest run.")


def _beside(pair: PairwiseComparison) -> str:
    """What tells the pair from the others, by the last word of each setting's name."""
    plain = ("model", "amp.precision", "compile.mode")
    words = []
    for name, value in pair.conditions.items():
        words.append(value if name in plain else f"{name.rpartition('.')[2]}={value}")
    return ", ".join(words) or pair.choice


def _intervals(axes: Axes, at: Sequence[float], ratios: Sequence[Ratio], colors: Sequence[str]) -> None:
    """Each ratio with its interval, over a band around 1 in which its two sides may differ by chance."""
    ratio_scale(axes, "x", *_limits(ratios))
    for y, of, color in zip(at, ratios, colors, strict=True):
        if of.noise_floor is not None:
            least, most = 1 / (1 + of.noise_floor), 1 + of.noise_floor
            axes.barh(y, most - least, BAR + GAP, least, color=BAND, linewidth=0, zorder=0)
        if of.low is not None and of.high is not None:
            ends = [of.low, of.high]
            axes.plot(ends, [y, y], "|-", color=color, linewidth=2.5, markersize=10, markeredgewidth=1.6)
        axes.plot([of.value], [y], "o", color=color, markersize=6.5)
        for edge, arrow in _runs_out(of, axes.get_xlim(), "<>"):
            axes.plot([edge], [y], arrow, color=color, markersize=6.5, transform=moved(axes, INWARDS[arrow]))


def _limits(ratios: Sequence[Ratio]) -> tuple[float, float]:
    """From the lowest to the highest, 1 too, with room around them. Intervals of two repeats can be so wide that
    nothing else would be seen: they run out of the axes."""
    low, high = min(of.value for of in ratios), max(of.value for of in ratios)
    ends = [end for of in ratios for end in (of.low, of.high) if end is not None]
    left, right = min(1, max(min([low, *ends]), 0.5 * low)), max(1, min(max([high, *ends]), 2 * high))
    room = 1.01 * (right / left) ** 0.06
    return left / room, right * room


def _runs_out(of: Ratio, limits: tuple[float, float], arrows: str) -> list[tuple[float, str]]:
    """The limits of an axis beyond which an interval goes on, each with its arrow."""
    if of.low is None or of.high is None:
        return []
    out = (of.low < limits[0], of.high > limits[1])
    return [(limit, arrow) for limit, arrow, beyond in zip(limits, arrows, out, strict=True) if beyond]


@rc_context(STYLE)
def times_to_step(group: Group, looks: Looks, name: str) -> Plot | None:
    """Compile time + steps, against steps: where a curve crosses eager's, compiling has paid for itself."""
    costs = {s.label: 0.0 if s.is_eager else median_of(s.compile_time_s) for s in group.candidates}
    known = [(setting, cost) for setting in group.candidates if (cost := costs[setting.label]) is not None]
    if not known:
        return None
    last = _last_step(group)
    # Readable where they cross: what pays only far behind the last step, or never, may run above the axes.
    near = [_time_s(s, cost, last) for s, cost in known if s.is_eager or _pays_by(s, last)]
    highest_s = 1.4 * max(near or [_time_s(s, cost, last) for s, cost in known])
    unit, scale = ("minutes", 60.0) if highest_s >= 300 else ("seconds", 1.0)
    step = step_of(group)
    figure, axes = curve_axes("calls" if step == "call" else "training steps", unit, num_ticks=5)
    keys = []
    for setting, cost in known:
        look, pays = looks[setting.label], setting.break_even
        ends = [cost / scale, _time_s(setting, cost, last) / scale]
        axes.plot([0, last], ends, color=look.color, linestyle=look.line, linewidth=1.8)
        if pays is not None and pays.num_steps <= last:
            paid = _time_s(setting, cost, pays.num_steps) / scale
            axes.plot([pays.num_steps], [paid], "o", color=look.color, markersize=6.5, zorder=3)
        keys.append((setting.label, "" if pays is None else f"pays off after {break_even_steps(pays, step)}"))
    note = f"Compile time included.{' From its dot on a setting is ahead of eager.' if any(w for _, w in keys) else ''}"
    if group.num_planned_steps is not None and group.num_planned_steps <= last:
        axes.axvline(group.num_planned_steps, color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
        note += f" Dashed: the {fixed(group.num_planned_steps, 0)} {step}s planned."
    axes.set_xlim(0, last)
    axes.set_ylim(0, highest_s / scale)
    if above := [setting.label for setting, cost in known if cost > highest_s]:
        note += f" Above the plot: {', '.join(above)}."
    title = f"Time to reach a {step}"
    return Plot(title, svg_of(figure, name, _listed(title, keys)), note, tuple(keys))


@rc_context(STYLE)
def memory(group: Group, looks: Looks, name: str) -> Plot | None:
    """Peaks of the steady steps as one bar in three shades, and the device's peak while compiling as a mark."""
    peaks = [(s.peak_device_bytes, s.peak_reserved_bytes, s.peak_allocated_bytes) for s in group.candidates]
    if not any(value for values in peaks for value in values):
        return None
    compiling = [max((row.compile_peak_device_bytes or 0 for row in s.rows), default=0) for s in group.candidates]
    unit, flat = in_one_unit([*(value for values in peaks for value in values), *compiling])
    bars, marks = [flat[i : i + 3] for i in range(0, 3 * len(peaks), 3)], flat[3 * len(peaks) :]
    digits = decimals([value for values in bars for value in values], 3)
    one = all(len(set(values)) == 1 for values in peaks)  # on a CPU, where all three are the resident memory
    figures = [[fixed(value, digits) for value in reversed(values[:1] if one else values)] for values in bars]
    words = [(s.label, " / ".join(of)) for s, of in zip(group.candidates, figures, strict=True)]
    figure, axes, at = rows(words, head=0 if one else 1)
    for y, setting, values, mark in zip(at, group.candidates, bars, marks, strict=True):
        for value, alpha in zip(values, (0.25, 0.45, 1.0), strict=True):
            axes.barh(y, value or 0, BAR, color=looks[setting.label].color, alpha=alpha, linewidth=0)
        if mark:
            axes.plot([mark], [y], "D", color=INK, markersize=5)
    axes.set_xlim(left=0)
    axes.set_xlabel(unit)
    legend(axes, [] if one else [(INK, 1.0, "allocated"), (INK, 0.59, "reserved"), (INK, 0.25, "device")])
    title = "Peak memory"
    diamond = " Diamond: device, while compiling." if any(compiling) else ""
    note = f"Highest of the {step_of(group)}s in which nothing compiled.{diamond}"
    return Plot(title, svg_of(figure, name, _listed(f"{title} in {unit}", words)), note)


@rc_context(STYLE)
def compile_cost(group: Group, name: str, beside: str = "") -> Plot | None:
    """What the seconds of compiling went into, for all that compiled. `beside` tells the group from others."""
    compiled = [s for s in group.candidates if not s.is_eager and s.compile_time_s is not None]
    stacks = [{word: s.compile_parts_s.get(part, 0.0) for part, word in COMPILE_PARTS.items()} for s in compiled]
    costs = [(s.label, median_of(s.compile_time_s), median_of(s.warm_compile_time_s)) for s in compiled]
    words = [(label, seconds(cost) + (f", warm {seconds(warm)}" if warm else "")) for label, cost, warm in costs]
    note = "Start-up is paid once a process and is not in the sum." if any(s["start-up"] for s in stacks) else ""
    return _stacked(_title("Compile time", beside), "seconds", words, stacks, name, note)


@rc_context(STYLE)
def breakdown(group: Group, name: str) -> Plot | None:
    """Forward, backward and optimizer of a step, for every setting with a profiling epoch."""
    times = {setting.label: _step_parts(setting) for setting in group.candidates}
    stacks = {label: parts for label, parts in times.items() if parts}
    digits = decimals((sum(parts.values()) for parts in stacks.values()), 3)
    words = [(label, f"{fixed(sum(parts.values()), digits)} ms") for label, parts in stacks.items()]
    return _stacked("Where a step's time goes", "ms", words, list(stacks.values()), name, "From the profiling epoch.")


@rc_context(STYLE)
def curves(group: Group, looks: Looks, epochs: Epochs, field: str, name: str) -> Plot | None:
    """One field of each epoch: the median over a setting's repeats as a line, the repeats as thin ones."""
    figure, axes = curve_axes("epoch", "", num_ticks=8)
    keys = []
    for setting in group.candidates:
        repeats = [known for row in setting.rows if (known := _known(epochs.get(row.run_id, ()), field))]
        if not repeats:
            continue
        look, together = looks[setting.label], sorted(set().union(*repeats))
        middles = [median(of[epoch] for of in repeats if epoch in of) for epoch in together]
        for of in repeats if len(repeats) > 1 else []:
            axes.plot(list(of), list(of.values()), color=look.color, linewidth=0.7, alpha=0.45)
        axes.plot(together, middles, color=look.color, linestyle=look.line, linewidth=1.8)
        axes.plot(together[-1:], middles[-1:], "o", color=look.color, markersize=4.5)
        keys.append((setting.label, fixed(middles[-1], 4)))
    if not keys:
        return None
    note = (
        "Median of the repeats; thin lines: each of them." if any(s.num_repeats > 1 for s in group.candidates) else ""
    )
    finding = _listed(f"{CURVES[field]} after the last epoch", keys)
    return Plot(CURVES[field], svg_of(figure, name, finding), note, tuple(keys))


def _stacked(
    title: str, unit: str, words: list[tuple[str, str]], stacks: list[dict[str, float]], name: str, note: str
) -> Plot | None:
    parts = [part for part in (stacks[0] if stacks else ()) if any(stack[part] for stack in stacks)]
    if not parts:
        return None
    colors = dict(zip((*COMPILE_PARTS.values(), STEP_PARTS[-1]), (*SHADES, SHADES[3]), strict=True))
    figure, axes, at = rows(words, head=math.ceil(len(parts) / 3))
    for y, stack in zip(at, stacks, strict=True):
        left = 0.0
        for part in parts:
            axes.barh(y, stack[part], BAR, left=left, color=colors[part], linewidth=0)
            left += stack[part]
    axes.set_xlim(left=0)
    axes.set_xlabel(unit)
    legend(axes, [(colors[part], 1.0, part) for part in parts])
    return Plot(title, svg_of(figure, name, _listed(title, words)), note)


def _pays_by(setting: Candidate, num_steps: int) -> bool:
    return setting.break_even is not None and setting.break_even.num_steps <= num_steps


def _time_s(setting: Candidate, compile_time_s: float, num_steps: int) -> float:
    return compile_time_s + num_steps * setting.step_time_ms.median / 1e3


def _last_step(group: Group) -> int:
    """So many steps that the crossings can be told apart: one far behind the first is left to the words."""
    pays = [setting.break_even.num_steps for setting in group.candidates if setting.break_even is not None]
    planned = group.num_planned_steps or 0
    if not pays:
        return max([1, planned, *(row.num_steps for setting in group.candidates for row in setting.rows)])
    furthest = 8 * max(min(pays), 1)
    return math.ceil(1.25 * max(1, *(step for step in (*pays, planned) if step <= furthest)))


def _step_parts(setting: Candidate) -> dict[str, float]:
    """Medians over the repeats that know them; empty where a part is unknown."""
    times = {part: [getattr(row, f"{part}_time_ms_p50") for row in setting.rows] for part in STEP_PARTS}
    known = {part: [ms for ms in of if ms is not None] for part, of in times.items()}
    return {part: median(of) for part, of in known.items()} if all(known.values()) else {}


def _known(records: Iterable[EpochRecord], field: str) -> dict[int, float]:
    """A field by the number of the epoch, counted from one."""
    return {r.epoch + 1: value for r in records if (value := getattr(r, field)) is not None}


def _title(what: str, beside: str) -> str:
    return f"{what}, {beside}" if beside else what


def _listed(what: str, of: Iterable[tuple[str, str]]) -> str:
    return clean(f"{what}: {'; '.join(f'{label} {word}'.strip() for label, word in of)}")
