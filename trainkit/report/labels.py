"""How facts are said: of runs, of groups of them, of findings.

Names and reasons came from users and logs: what is returned of them is one line without control characters.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from trainkit.analysis import grouping
from trainkit.analysis.comparison import Comparison, Group
from trainkit.analysis.regressions import Change
from trainkit.config.schema import CUDAGRAPH_MODES
from trainkit.diagnosis.findings import KINDS, Diagnosis, Finding, Phase
from trainkit.diagnosis.remedies.graph_breaks import remedy_for_break
from trainkit.diagnosis.remedies.matching import Remedy
from trainkit.diagnosis.remedies.recompiles import BY_BATCH_SHAPE, guard, remedy_for_recompile
from trainkit.formatting import clean, decimals, factor, fixed, percent, seconds, shares, short
from trainkit.results.facts import Region, Stage
from trainkit.results.row import Row
from trainkit.stats import Estimate

# Parts of the compile time, in the order in which they are stacked.
COMPILE_PARTS = {
    "startup": "start-up",
    "forward": "forward",
    "backward": "backward",
    "autotune": "autotuning",
    "cudagraph": "CUDA graphs",
    "recompile": "recompiles",
}
# The share of a step below which a GPU waits for the host too much, and what helps without CUDA graphs and with them.
BUSY = 0.8
UNGRAPHED = "compile.mode=reduce-overhead launches the kernels of a graph at once; or take a larger batch"
GRAPHED = "what no CUDA graph holds, as the optimizer, is launched kernel by kernel; take a larger batch"
# What the figures of a diagnosis are.
ROUNDS = "Medians over rounds in which all variants ran by turns; beside them the lowest and the highest round."

# What one choice of settings is measured over another in; without a field how fast the steps are.
FIGURES = {
    None: "Speed",
    "compile_time_s": "Compile time",
    "compile_recompile_s": "Time of recompiles",
    "peak_allocated_bytes": "Peak tensor memory",
    "samples_per_s": "Samples a second",
    "train_loss": "Training loss",
    "step_time_ms_p50": "Median time",
    "step_time_ms_p99": "p99 time",
    "deadline_miss_frac": "Missed deadlines",
}


def step_of(of: Row | Group | Change) -> str:
    """What a step of it is called."""
    return "call" if of.kind == "forward" else "step"


def trained_of(of: Row | Group | Change) -> str:
    processes = f", {of.world_size} processes" if of.world_size > 1 else ""
    alone = ", forward only" if of.kind == "forward" else ""
    batch = "" if of.batch_size is None else f", batch {fixed(of.batch_size, 0)}"
    return f"{of.model} on {of.data}{batch}{processes}{alone}"


def contrast_of(field: str | None, of: str, over: str) -> str:
    """`Speed of dynamic=true over dynamic=false (default)`; of a share, which is no ratio, `with` and `and with`."""
    these, those, shared = choices(of, over)
    words = f"with {these} and with {those}" if (field or "").endswith("_frac") else f"of {these} over {those}"
    return f"{FIGURES.get(field, field)} {words}{f' ({shared})' if shared else ''}"


def choices(of: str, over: str) -> tuple[str, str, str]:
    """Two choices of settings as labels say them, and what both share; all with each where one is nothing more."""
    these, those = of.split(), over.split()
    shared = [word for word in these if word in those]
    if len(shared) in (len(these), len(those)):
        shared = []
    own = [[word for word in words if word not in shared] for words in (these, those)]
    of, over, both = (", ".join(grouping.short_override(word) for word in words) for words in (*own, shared))
    return of, over, both


def work_of(group: Group) -> str:
    return clean(", ".join([trained_of(group), *filter(None, [group.precision]), *group.overrides]))


def machine_of(machine: Mapping[str, Any]) -> str:
    packages = ("torch", "triton", "CUDA", "Python", "lightning")
    versions = {name: machine.get(f"{name.lower()}_version") for name in packages}
    known = [f"{name} {version}" for name, version in versions.items() if version]
    devices = [f"{machine.get('num_devices')} x {name}"] if (name := machine.get("device_name")) else []
    return clean(", ".join([*devices, *known])) or "-"


def machines_of(groups: Sequence[Group]) -> list[str]:
    """The machine of each, "" where it is that of the one before."""
    said = [machine_of(group.machine) for group in groups]
    return [machine if machine != before else "" for before, machine in zip(["", *said], said, strict=False)]


def notes_of(groups: Sequence[Group]) -> tuple[list[list[str]], list[str]]:
    """What a reader must know of how each group was measured, and what holds of all of them."""
    general = [_general(group) for group in groups]
    of_all = [note for note in general[0] if all(note in notes for notes in general)] if general else []
    return [
        [clean(note) for note in [*_special(group), *notes] if note not in of_all]
        for group, notes in zip(groups, general, strict=True)
    ], of_all


def _special(group: Group) -> Iterator[str]:
    """Of single settings."""
    if once := [setting.label for setting in group.candidates if setting.num_repeats == 1]:
        who = "every setting" if len(once) == len(group.candidates) else "; ".join(once)
        yield f"One run only of {who}: its spread is unknown. hydra.launcher.repeats=2 or more shows it."
    for setting in group.candidates:
        most = max(setting.rows, key=lambda row: row.num_skipped_steps or 0)
        if words := skipped(most):
            yield f"{setting.label}: {words}; the learning rate's schedule went on."
    for setting in group.candidates:
        if words := chain_of(setting.rows):
            yield f"{setting.label}: {words}."
    for setting in group.candidates:
        if words := compiled_parts(setting.rows[0]):
            yield f"{setting.label}: compiled {words}."
    if words := tuned_again(group):
        yield words


def _general(group: Group) -> list[str]:
    notes = []
    warm = [[row.cache_found for row in of.rows if row.compile_cache == "warm"] for of in group.candidates]
    if sum(any(found) for found in warm) > 1 and any("cold" in found for found in warm):
        notes.append(
            "The compile cache was shared: kernels that one setting compiled or chose are found by the next, however "
            "cold its graphs. compile.cache=cold measures what each costs alone."
        )
    if group.candidates[0].rows[0].deadline_ms is not None:
        notes.append(
            "Missed: a request comes once in each deadline and waits for those before it, so one late call can make "
            "the next ones late too."
        )
    return notes


def chain_of(rows: Sequence[Row]) -> str:
    """The share of calls of each link, over repeats; "" where there is no chain."""
    if not rows[0].chain:
        return ""
    called = zip(*([link.call_frac for link in row.chain or []] for row in rows), strict=True)
    known = [[frac for frac in fracs if frac is not None] for fracs in called]
    links = zip(rows[0].chain, known, strict=True)
    said = (f"{link_of(link, rows[0])} {shares(fracs) if fracs else '-'}" for link, fracs in links)
    return f"answered by {', '.join(said)}"


def tuned_again(group: Group) -> str:
    """Where more than half of the compile time with a warm cache tried out kernels again, and that torch does so."""
    said = []
    for setting in group.candidates:
        warm = [row for row in setting.rows if row.cache_found == "warm" and str(row.torch_version).startswith("2.11")]
        tried_s = sum(row.compile_autotune_s or 0.0 for row in warm)
        taken_s = sum(row.compile_time_s or 0.0 for row in warm)
        if 2 * tried_s > taken_s:
            said.append(f"{percent(tried_s / taken_s)} of {setting.label}")
    if not said:
        return ""
    return (
        f"With a warm cache kernels are tried out again, for much of the compile time ({'; '.join(said)}): torch 2.11 "
        "does not find all that it chose before (https://github.com/pytorch/pytorch/issues/172819, mended in 2.12)."
    )


def compiled_parts(row: Row) -> str:
    """The modules and functions that were compiled, each with its own mode and its graphs; "" where it was all."""
    said = [(region.name, _how(region, row.compile_mode)) for region in row.compiled_parts or []]
    words = []
    for how, alike in groupby(said, key=lambda one: one[1]):
        names = [name for name, _ in alike]
        words.append(f"{names[0]}{f' to {names[-1]}' if len(names) > 1 else ''} ({how})")
    return ", ".join(words)


def _how(region: Region, mode: str) -> str:
    count = region.num_graphs
    reused = count == 0 if region.reused is None else region.reused  # old rows do not say it
    graphs = "reused" if reused else "no graph" if count == 0 else f"{fixed(count, 0)} graph{'s' * (count != 1)}"
    return ("" if region.mode == mode else f"{region.mode}, ") + (graphs if region.num_calls else "never called")


def graph_breaks(row: Row) -> list[tuple[str, Remedy]]:
    """The place and torch's reason of each graph break, and what to do about it."""
    return [(f"{site.file}:{site.line}: {site.reason}", remedy_for_break(site)) for site in row.graph_breaks or ()]


def recompiles(row: Row) -> list[tuple[str, Remedy, float | None]]:
    """The cause of each recompile, what to do about it, its seconds. A cause that is a size has the shapes of the batch
    that brought it, in place of torch's comment on the guard, which can be long."""
    causes = row.recompiles or []
    shapes: Iterable[list[list[int]] | None] = row.recompile_shapes or [None] * len(causes)
    times_s: Iterable[float | None] = row.recompile_times_s or [None] * len(causes)
    found = [
        (cause, remedy_for_recompile(cause, row.compile_dynamic), shape, time_s)
        for cause, shape, time_s in zip(causes, shapes, times_s, strict=True)
    ]
    return [
        (f"{guard(cause)} (by a batch of {batch(shape)})" if shape and told in BY_BATCH_SHAPE else cause, told, time_s)
        for cause, told, shape, time_s in found
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


def link_of(link: Stage, row: Row) -> str:
    """What a link of a chain is: its settings, and what took effect where that is another mode."""
    words = link.settings or f"{row.model} {row.compile_mode}"
    got = link.effective_mode
    return words if got in (None, link.compile_mode) else f"{words} (got {got}: {link.effective_mode_reason})"


def expected(link: Stage) -> str:
    """The milliseconds by which a link was chosen or not: from the least to the most over the shapes of the inputs."""
    known = [latency.time_ms for latency in link.expected_ms if latency.time_ms is not None]
    digits = decimals(known, 4)
    return " to ".join(dict.fromkeys(fixed(ms, digits) for ms in (min(known), max(known)))) if known else "-"


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
    gain = _figure(phase.gain, lambda value: f"{factor(value)}x")
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


def busy(phase: Phase, mode: str) -> str:
    """How much of the compiled step the GPU works, and what to do where it waits; "" where that was not measured."""
    share = phase.device_busy_frac
    if share is None:
        return ""
    figure, between = _figure(share, percent)
    said = f"{phase.name}: the GPU works for {figure} of the compiled step ({between})"
    if share.high >= BUSY:
        return f"{said}."
    return f"{said} and waits for the host in the rest: {GRAPHED if mode in CUDAGRAPH_MODES else UNGRAPHED}."


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
    again = "what comes after it there was not looked at; mend it and diagnose again"
    if finding.uncompiled:
        lines["note"] = f"for this all of {finding.uncompiled} runs uncompiled, and {again}"
    elif finding.uncompiled_after:
        lines["note"] = f"for this {finding.uncompiled_after} runs uncompiled from here on, and {again}"
    if finding.num_recompiles:
        took = "" if finding.recompile_s is None else f", {seconds(finding.recompile_s)}"
        shapes = f", by batches of {'; '.join(map(batch, finding.recompile_shapes))}" * bool(finding.recompile_shapes)
        lines["cost"] = f"{finding.num_recompiles} recompile{'s' * (finding.num_recompiles > 1)}{took}{shapes}"
    elif cost := break_cost(finding, phases):
        lines["cost"] = cost
    return {name: clean(words) for name, words in (lines | {"torch": short(finding.reason)}).items()}


def break_cost(finding: Finding, phases: Iterable[Phase]) -> str:
    """What a graph break costs, never without its interval; "" where nobody measured it."""
    if finding.cost_unknown is not None:
        return f"not measured: {finding.cost_unknown}"
    if finding.cost_ms is None:
        return ""
    cost = finding.cost_ms
    digits = decimals([cost.value, cost.high - cost.low], 2)
    between = f"{fixed(cost.low, digits)} to {fixed(cost.high, digits)} ms"
    phase = next((p for p in reversed(list(phases)) if p.name in finding.phases and p.step_time_ms), None)
    step = phase.step_time_ms if phase else None
    noise = "; the rounds differ too much: is the machine busy?" * bool(step and cost.high - cost.low > step.value)
    if cost.low <= 0 <= cost.high:
        return f"no measurable difference ({between}){noise}"
    if cost.high < 0:
        return f"none, the step is slower without it: {fixed(cost.value, digits)} ms ({between}){noise}"
    share = f", {percent(cost.value / step.value)} of the {phase.name} step" if phase and step and step.value else ""
    return f"{fixed(cost.value, digits)} ms ({between}){share}{noise}"
