"""How figures and facts are said: the only place where numbers become strings. "-" is what was not measured.

Names and reasons came from users and logs: what is returned of them is one line without control characters.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from trainkit.advice import Advice, of_break, of_recompile
from trainkit.baseline import Change
from trainkit.compare import BreakEven, Comparison, Group, Setting, Spread, is_eager
from trainkit.contrasts import Contrast
from trainkit.findings import KINDS, Diagnosis, Finding, Phase
from trainkit.intervals import Estimate, Ratio
from trainkit.results import Row

# Parts of the compile time, in the order in which they are stacked.
COMPILE_PARTS = {
    "startup": "start-up",
    "forward": "forward",
    "backward": "backward",
    "autotune": "autotuning",
    "cudagraph": "CUDA graphs",
    "recompile": "recompiles",
}
# What the figures of a diagnosis are.
ROUNDS = "Medians over rounds in which all variants ran by turns; beside them the lowest and the highest round."
LONGEST_REASON = 200  # an error of the compiler can be pages; all of it lies in row.json


def step_of(of: Row | Group | Change) -> str:
    """What a step of it is called."""
    return "call" if of.kind == "forward" else "step"


def verdict(setting: Setting, group: Group) -> str:
    """One line: what a setting gains over eager, what compiling costs and when it pays, what speaks against it."""
    words = f"{setting.label}: {_gain(setting)}"
    pays, planned = setting.break_even, group.num_planned_steps
    if pays is not None:
        words += f", pays after {_when(pays, step_of(group), planned)}"
        if planned is not None and planned < pays.num_steps:
            words += f"; for a run of {fixed(planned, 0)} {step_of(group)}s stay with eager"
    if setting.num_lost:
        words += f"; {setting.num_lost} of {num_runs(setting.num_lost + setting.num_repeats)} failed"
    return clean(words + _caveat(setting))


def _caveat(setting: Setting) -> str:
    if setting.accuracy_within is not False:
        return ""
    return f"; accuracy {fixed(middle(setting.val_accuracy), 3)} differs from eager's by more than chance"


def _gain(setting: Setting) -> str:
    speedup, over = setting.speedup, setting.over
    if is_eager(setting):
        return "what the others are compared with"
    if speedup is None:
        return "no eager row to compare with"
    if speedup.measurable is None:
        return f"unknown: 1 run{' of eager' if setting.num_repeats > 1 else ''} ({times(speedup)} over {over})"
    if not speedup.measurable:
        return f"no measurable difference to {over} ({found(speedup)}, noise floor {percent(speedup.noise_floor)})"
    if speedup.value < 1:
        return f"{found(speedup)}: slower than {over}"
    cost, warm = middle(setting.compile_time_s), middle(setting.warm_compile_time_s)
    if cost is None:
        return f"{found(speedup)} over {over}, compile time unknown"
    cache = f" ({duration(warm)} warm)" if warm else _cache_words(setting)
    return f"{found(speedup)} over {over}, +{duration(cost)} compile{cache}"


def _cache_words(setting: Setting) -> str:
    cache = cache_of(setting)
    return f" with a {cache} cache" if cache else ""


def cache_of(setting: Setting) -> str:
    """How warm a compile cache every run found, where none found it cold: what compiling costs alone is unknown."""
    found = {row.cache_found for row in setting.rows}
    return "warm" if found == {"warm"} else "partly warm" if "mixed" in found and "cold" not in found else ""


def _when(pays: BreakEven, step: str, planned: int | None = None) -> str:
    epochs = [] if pays.num_epochs is None else [f"{fixed(pays.num_epochs, 0 if pays.num_epochs >= 2 else 1)} epochs"]
    warm = "" if pays.num_warm_steps is None else f"; {_two_digits(pays.num_warm_steps)} with a warm cache"
    # Not rounded beyond the planned steps by which it has paid.
    exact = planned is not None and pays.num_steps <= planned < 1.1 * pays.num_steps
    num_steps = f"{fixed(pays.num_steps, 0)} {step}s" if exact else steps_of(pays, step)
    return f"{num_steps} ({', '.join([*epochs, duration(60 * pays.minutes)])}{warm})"


def steps_of(pays: BreakEven, step: str) -> str:
    return f"{_two_digits(pays.num_steps)} {step}s"


def _two_digits(num_steps: int) -> str:
    """The two digits that such an estimate has, rather too many steps than too few."""
    scale = 10 ** max(len(str(num_steps)) - 2, 0)
    return fixed(math.ceil(num_steps / scale) * scale, 0)


def advice(group: Group) -> str:
    """One line: which setting to train with, or to call with, or why that is not known."""
    advised, planned = group.advised, group.num_planned_steps
    run = "" if planned is None else f" for a run of {fixed(planned, 0)} {step_of(group)}s"
    if advised is None:
        words = f"No advice: {_unknown(group)}."
    elif is_eager(advised):
        words = f"Stay with {advised.label}{run}: {_why_eager(group, advised)}."
    else:
        in_all = "" if advised.total_time_s is None else f", {duration(advised.total_time_s)} in all"
        in_all += _cache_words(advised) if advised.total_time_s is not None else ""
        gain = f"{found(advised.speedup)} over {advised.over}{in_all}{_pays(group, advised)}{_caveat(advised)}"
        words = f"{'Call' if group.kind == 'forward' else 'Train'} with {advised.label}{run}: {gain}."
        if planned is None and (faster := _faster(group, advised)) is not None:
            words += f" {faster.label} is {percent(_gap(advised, faster))} faster{_dearer(faster, advised)}."
    return clean(words)


def _why_eager(group: Group, advised: Setting) -> str:
    if group.num_planned_steps is None:
        gains = [s for s in group.settings if s.break_even is not None and s.over == advised.label]
        first = min(gains, key=lambda setting: setting.step_time_ms.median, default=None)
        if first is None:
            return "no setting is measurably faster"
        return f"the fastest, {first.label}, is only {percent(_gap(advised, first))} faster"
    faster = _faster(group, advised)
    return (
        "no setting is measurably faster"
        if faster is None
        else f"{faster.label} has faster {step_of(group)}s, but its compiling does not pay by then"
    )


def _faster(group: Group, than: Setting) -> Setting | None:
    """The setting with the shortest step of those that are measurably faster than eager, and faster than this one."""
    known = [s for s in group.settings if s.speedup is not None and s.speedup.measurable and s.speedup.value > 1]
    shorter = [s for s in known if s.step_time_ms.high < than.step_time_ms.low]
    return min(shorter, key=lambda setting: setting.step_time_ms.median, default=None)


def _gap(slower: Setting, faster: Setting) -> float:
    return slower.step_time_ms.median / faster.step_time_ms.median - 1


def _dearer(faster: Setting, than: Setting) -> str:
    cost, other = middle(faster.compile_time_s), middle(than.compile_time_s)
    if cost is None or other is None:
        return ", and its compile time is unknown"
    return ", and compiles longer" if cost > other else "" if not cache_of(faster) else f",{_cache_words(faster)}"


def _pays(group: Group, advised: Setting) -> str:
    """When the advised setting pays, and which one pays sooner where no number of steps decides between them."""
    slowest_worth = min((s.step_time_ms.median for s in group.settings if is_eager(s)), default=math.inf)
    worth = [s for s in group.settings if s.step_time_ms.median < slowest_worth]
    pays = {s.label: s.break_even for s in worth if s.break_even is not None}
    if advised.label not in pays:
        return ""
    words = f"; it pays after {_when(pays[advised.label], step_of(group), group.num_planned_steps)}"
    first = min(pays, key=lambda label: pays[label].num_steps)
    if first == advised.label or group.num_planned_steps is not None:
        return words
    return f"{words}. For shorter runs: {first} pays first, after {_when(pays[first], step_of(group))}"


def _unknown(group: Group) -> str:
    if not any(is_eager(setting) for setting in group.settings):
        return "eager was not measured"
    compiled = [setting for setting in group.settings if not is_eager(setting)]
    if not compiled:
        return "nothing but eager was measured"
    return "too few runs" if any(s.speedup for s in compiled) else "no eager run has the settings of the others"


def contrasted(pairs: Sequence[Contrast]) -> str:
    """One sentence: what a choice measured over another, for each work that has both, with its interval."""
    if not pairs:
        return "Not measured."
    first = pairs[0]
    measured = [f"{_chance(pair)}{_beside(pair)}" for pair in pairs]
    if first.shares is not None:
        subject = f"{first.field} with {first.of}, and with {first.over}"
    elif first.field is None:
        subject = f"Steps with {first.of}, as fast as with {first.over}"
    else:
        subject = f"{first.field} with {first.of}, of that with {first.over}"
    return clean(f"{subject}: {'; '.join(measured)}{_from_where(pairs)}.")


def _chance(pair: Contrast) -> str:
    if pair.ratio is None:
        return " and ".join(_shares(values) for values in pair.shares or ())
    return f"{found(pair.ratio)}{', no measurable difference,' if pair.ratio.measurable is False else ''}"


def _shares(values: Sequence[float]) -> str:
    between = f" ({percent(min(values))} to {percent(max(values))})" if len(values) > 1 else ""
    return f"{percent(median(values))}{between}"


def _beside(pair: Contrast) -> str:
    beside = [
        value if name in ("model", "amp.precision", "compile.mode") else f"{name}={value}"
        for name, value in pair.beside.items()
    ]
    return f" at {', '.join(beside)}" if beside else ""


def _from_where(pairs: Sequence[Contrast]) -> str:
    """From which number on a choice is measurably faster, where one number is all that the pairs differ in."""
    names = {name for pair in pairs for name in pair.beside}
    known = [pair.ratio for pair in pairs if pair.ratio is not None and pair.field is None]
    certain = len(known) == len(pairs) and all(of.measurable is not None for of in known)
    if len(names) != 1 or not certain or not all(pair.beside.get(min(names), "").isdigit() for pair in pairs):
        return ""
    (name,) = names
    ordered = sorted(
        ((int(pair.beside[name]), of) for pair, of in zip(pairs, known, strict=True)), key=lambda found: found[0]
    )
    faster = [bool(of.measurable) and of.value > 1 for _, of in ordered]
    sure = next((number for n, (number, _) in enumerate(ordered) if all(faster[n:])), None)
    return "" if sure is None else f"; measurably faster from {sure} on"


def trained_of(of: Row | Group | Change) -> str:
    processes = f", {of.world_size} processes" if of.world_size > 1 else ""
    alone = ", forward only" if of.kind == "forward" else ""
    batch = "" if of.batch_size is None else f", batch {fixed(of.batch_size, 0)}"
    return f"{of.model} on {of.data}{batch}{processes}{alone}"


def work_of(group: Group) -> str:
    return clean(", ".join([trained_of(group), *filter(None, [group.precision]), *group.overrides]))


def machine_of(machine: Mapping[str, Any]) -> str:
    packages = ("torch", "triton", "CUDA", "Python", "lightning")
    versions = {name: machine.get(f"{name.lower()}_version") for name in packages}
    known = [f"{name} {version}" for name, version in versions.items() if version]
    devices = [f"{machine.get('num_devices')} x {name}"] if (name := machine.get("device_name")) else []
    return clean(", ".join([*devices, *known])) or "-"


def notes_of(group: Group) -> list[str]:
    """What a reader must know of how the group was measured."""
    notes = []
    if once := [setting.label for setting in group.settings if setting.num_repeats == 1]:
        who = "every setting" if len(once) == len(group.settings) else "; ".join(once)
        notes.append(f"One run only of {who}: its spread is unknown. hydra.launcher.repeats=2 or more shows it.")
    compiled = [setting.rows for setting in group.settings if not is_eager(setting)]
    if sum(any(row.cache_found == "cold" and row.compile_cache == "warm" for row in rows) for rows in compiled) > 1:
        notes.append(
            "The compile cache was shared: kernels that one setting compiled or chose are found by the next, however "
            "cold its graphs. compile.cache=cold measures what each costs alone."
        )
    for setting in group.settings:
        most = max(setting.rows, key=lambda row: row.num_skipped_steps or 0)
        if words := skipped(most):
            notes.append(f"{setting.label}: {words}; the learning rate's schedule went on.")
    for setting in group.settings:
        if words := chain_of(setting.rows):
            notes.append(f"{setting.label}: {words}.")
    for setting in group.settings:
        if words := compiled_parts(setting.rows[0]):
            notes.append(f"{setting.label}: compiled {words}.")
    return [clean(note) for note in notes]


def chain_of(rows: Sequence[Row]) -> str:
    """The share of calls of each link, the median over repeats; "" where there is no chain."""
    if not rows[0].chain:
        return ""
    shares = zip(*([link["call_frac"] for link in row.chain or []] for row in rows), strict=True)
    middles = [median(known) if (known := [s for s in of if s is not None]) else None for of in shares]
    links = zip(rows[0].chain, middles, strict=True)
    return "answered by " + ", ".join(f"{link_of(link, rows[0])} {percent(share)}" for link, share in links)


def compiled_parts(row: Row) -> str:
    """The modules and functions that were compiled, each with its own mode and its graphs; "" where it was all."""
    said = [(part["name"], _how(part, row.compile_mode)) for part in row.compiled_parts or []]
    words = []
    for how, alike in groupby(said, key=lambda one: one[1]):
        names = [name for name, _ in alike]
        words.append(f"{names[0]}{f' to {names[-1]}' if len(names) > 1 else ''} ({how})")
    return ", ".join(words)


def _how(part: Mapping[str, Any], mode: str) -> str:
    count = part["num_graphs"]
    graphs = "reused" if count == 0 else f"{fixed(count, 0)} graph{'s' * (count != 1)}"
    return ("" if part["mode"] == mode else f"{part['mode']}, ") + (graphs if part["num_calls"] else "never called")


def graph_breaks(row: Row) -> list[tuple[str, Advice]]:
    """The place and torch's reason of each graph break, and what to do about it."""
    return [
        (f"{site.get('file')}:{site.get('line')}: {site.get('reason')}", of_break(site))
        for site in row.graph_breaks or ()
    ]


def recompiles(row: Row) -> list[tuple[str, Advice, float | None]]:
    """The cause of each recompile with the shapes of the batch that brought it, what to do about it, its seconds."""
    causes = row.recompiles or []
    shapes: Iterable[list[list[int]] | None] = row.recompile_shapes or [None] * len(causes)
    times_s: Iterable[float | None] = row.recompile_times_s or [None] * len(causes)
    return [
        (cause if shape is None else f"{cause} (by a batch of {batch(shape)})", of_recompile(cause), time_s)
        for cause, shape, time_s in zip(causes, shapes, times_s, strict=True)
    ]


def batch(shape: Iterable[list[int]]) -> str:
    return " and ".join(map(str, shape))


def uncompiled(row: Row) -> str:
    """How many steps ran uncompiled though they should not; "" where none did."""
    if not row.num_eager_steps or row.compile_mode == "eager":
        return ""
    counted = f"{fixed(row.num_eager_steps, 0)} of {fixed(row.num_steps, 0)} {step_of(row)}s"
    return f"{counted} ran uncompiled, as a whole or in part"


def missed(row: Row) -> str:
    """How many steady calls missed their deadline; "" where there was none."""
    if row.deadline_ms is None:
        return ""
    return (
        f"{percent(row.deadline_miss_frac)} of calls missed {fixed(row.deadline_ms, decimals([row.deadline_ms], 2))} ms"
    )


def link_of(link: Mapping[str, Any], row: Row) -> str:
    """What a link of a chain is: its settings, and what took effect where that is another mode."""
    words = link["settings"] or f"{row.model} {row.compile_mode}"
    got = link["effective_mode"]
    return words if got in (None, link["compile_mode"]) else f"{words} (got {got}: {link['effective_mode_reason']})"


def skipped(row: Row) -> str:
    """How many steps the gradient scaler skipped, and what that means; "" where it skipped none, or there is none."""
    if not row.num_skipped_steps:
        return ""
    counted = f"{fixed(row.num_skipped_steps, 0)} of {fixed(row.num_steps, 0)} steps"
    return f"{counted} skipped: a gradient overflowed fp16, and no parameter moved"


def dropped_title(comparison: Comparison) -> str:
    return f"Dropped: {num_runs(sum(len(drop.rows) for drop in comparison.dropped))}"


def num_runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def diagnosed(diagnosis: Diagnosis) -> str:
    """What was diagnosed: network, data and settings."""
    trained = f"{diagnosis.model} on {diagnosis.data}, batch {fixed(diagnosis.batch_size, 0)}"
    return clean(", ".join([trained, f"mode {diagnosis.compile_mode}", diagnosis.precision, *diagnosis.overrides]))


def count_of_findings(diagnosis: Diagnosis) -> str:
    """How much of each kind was found, or that there is nothing."""
    counts = {kind: sum(finding.kind == kind for finding in diagnosis.findings) for kind in KINDS}
    said = [f"{count} {_plural(kind, count)}" for kind, count in counts.items() if count]
    if said:
        return f"Found: {', '.join(said)}."
    if any(phase.error for phase in diagnosis.phases):
        return "Found: nothing, up to the failure."
    return "Nothing to mend: no graph break, no recompile, no CUDA graph skipped."


def _plural(kind: str, count: int) -> str:
    places = {"recompile": "cause of recompiles", "CUDA graphs skipped": "cause of skipped CUDA graphs"}.get(kind, kind)
    first, of, rest = places.partition(" of ")
    return f"{first}{'s' * (count > 1)}{of}{rest}"


def phase_words(phase: Phase) -> dict[str, tuple[str, str]]:
    """The columns of a phase (what was compiled, step times, gain, shares): each a figure and its interval."""
    times = (phase.step_time_ms, phase.eager_step_time_ms)
    digits = decimals([time.value for time in times if time], 3)
    compiled, eager = (_figure(time, lambda ms: fixed(ms, digits)) for time in times)
    gain = _figure(phase.gain, lambda value: f"{_factor(value)}x")
    if phase.gain is not None and phase.gain.low <= 1 <= phase.gain.high:
        gain = ("none measurable", gain[1])
    return {
        "graphs": (fixed(phase.num_graphs, 0), "limit reached" * bool(phase.recompile_limit_hit)),
        "step ms": compiled,
        "eager ms": eager,
        "gain": gain,
        "compiled share": _figure(phase.compiled_frac, percent),
        "optimizer": _figure(phase.optimizer_frac if phase.name == "training" else None, percent),
    }


def _figure(measured: Estimate | None, said: Callable[[float], str]) -> tuple[str, str]:
    if measured is None:
        return "-", ""
    return said(measured.value), f"{said(measured.low)} to {said(measured.high)}"


def place_of(finding: Finding, folder: Path | None = None) -> str:
    """file:line, below a folder without its path."""
    if finding.file is None:
        return "no line of yours"
    path = Path(finding.file)
    inside = folder is not None and path.is_relative_to(folder)
    return clean(f"{path.relative_to(folder) if inside and folder else path}:{finding.line}")


def finding_title(finding: Finding) -> str:
    return clean(f"{finding.kind}: {finding.cause}, in {' and '.join(finding.phases)}")


def stage_words(stages: Mapping[str, Mapping[str, float]]) -> tuple[list[str], dict[str, list[str]]]:
    """The names of the stages of a compile, and by backend the seconds of each."""
    names = list(dict.fromkeys(name for spent in stages.values() for name in spent))
    return names, {backend: [fixed(spent.get(name), 2) for name in names] for backend, spent in stages.items()}


def finding_lines(finding: Finding, phases: Iterable[Phase]) -> dict[str, str]:
    """Name and words of what is known of a finding, the remedy second."""
    lines = {"why": finding.why, "do": finding.remedy}
    if finding.uncompiled:
        lines["note"] = f"for this all of {finding.uncompiled} runs uncompiled"
    if finding.num_recompiles:
        took = "" if finding.recompile_s is None else f", {seconds(finding.recompile_s)}"
        shapes = f", by batches of {'; '.join(map(batch, finding.recompile_shapes))}" * bool(finding.recompile_shapes)
        lines["cost"] = f"{finding.num_recompiles} recompile{'s' * (finding.num_recompiles > 1)}{took}{shapes}"
    elif cost := _break_cost(finding, {phase.name: phase.step_time_ms for phase in phases}):
        lines["cost"] = cost
    return {name: clean(words) for name, words in (lines | {"torch": short(finding.reason)}).items()}


def _break_cost(finding: Finding, step_time_ms: Mapping[str, Estimate | None]) -> str:
    """What a graph break costs, never without its interval; "" where nobody measured it."""
    if finding.cost_unknown is not None:
        return f"not measured: {finding.cost_unknown}"
    if finding.cost_ms is None:
        return ""
    cost = finding.cost_ms
    digits = decimals([cost.value, cost.high - cost.low], 2)
    between = f"{fixed(cost.low, digits)} to {fixed(cost.high, digits)} ms"
    if cost.low <= 0 <= cost.high:
        return f"no measurable difference ({between})"
    if cost.high < 0:
        return f"none, the step is slower without it: {fixed(cost.value, digits)} ms ({between})"
    phase = next((name for name in reversed(list(step_time_ms)) if name in finding.phases and step_time_ms[name]), "")
    whole = step_time_ms.get(phase)
    share = f", {percent(cost.value / whole.value)} of the {phase} step" if whole and whole.value else ""
    return f"{fixed(cost.value, digits)} ms ({between}){share}"


def middle(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median


def range_of(spread: Spread | None, decimals: int) -> str:
    """The lowest and the highest of several repeats; "" where they are one value."""
    if spread is None or spread.low == spread.high:
        return ""
    return f"{fixed(spread.low, decimals)}-{fixed(spread.high, decimals)}"


def interval(speedup: Ratio | None, between: str = "-") -> str:
    """The interval of a ratio; "" where it is unknown, and for eager's own."""
    if speedup is None or speedup.low is None or speedup.high is None or speedup.low == speedup.high:
        return ""
    return f"{_factor(speedup.low)}{between}{_factor(speedup.high)}"


def times(speedup: Ratio | None) -> str:
    return "no eager row" if speedup is None else f"{_factor(speedup.value)}x"


def found(speedup: Ratio | None) -> str:
    """A ratio in words, with its interval where it is known."""
    between = interval(speedup, ", ")
    return f"{times(speedup)} [{between}]" if between else times(speedup)


def _factor(value: float) -> str:
    # Two repeats that have little in common give an interval over many powers of ten.
    return fixed(value, 2) if value < 1000 else "1,000+"


def fixed(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:,.{decimals}f}"


def decimals(values: Iterable[float | None], digits: int) -> int:
    """The decimals that show the smallest value to so many digits: 3 at most, and the same for a whole column."""
    smallest = min((abs(value) for value in values if value), default=1.0)
    return min(max(digits - 1 - math.floor(math.log10(smallest)), 0), 3)


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{fixed(value, decimals([value], 3))} s"


def duration(value_s: float) -> str:
    """Two digits or more, in the unit that people would say it in."""
    in_units = ((value_s / 3600, "h"), (value_s / 60, "min"))
    value, unit = next((one for one in in_units if one[0] >= 2), (value_s, "s"))
    return f"{fixed(value, 0 if value >= 10 else 1)} {unit}"


def scientific(value: float) -> str:
    return f"{value:.1e}"


def percent(frac: float | None) -> str:
    if frac is None:
        return "-"
    return f"{100 * frac:.1f} %" if frac < 10 else "1,000+ %"


def size(value: int | None) -> str:
    unit, (in_unit,) = in_one_unit([value])
    return "-" if in_unit is None else f"{fixed(in_unit, decimals([in_unit], 3))} {unit}"


def in_one_unit(values: Iterable[int | None]) -> tuple[str, list[float | None]]:
    """One unit for all, GiB where the largest has one, and the values in it."""
    values = list(values)
    unit, size = ("GiB", 2**30) if max((v or 0 for v in values), default=0) >= 2**30 else ("MiB", 2**20)
    return unit, [None if value is None else value / size for value in values]


def clean(text: str) -> str:
    """One line that a terminal can show: no escape sequences, no line breaks."""
    return "".join(c if c.isprintable() else " " for c in re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text))


def short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."
