"""A diagnosis as text: its title, its phases, its findings with their cost, the stages of a compile.

Names, reasons and code come from users and logs: they become one line without control characters.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainkit.config.schema import CUDAGRAPH_MODES
from trainkit.diagnosis.findings import FINDING_KINDS, Diagnosis, Finding, Phase
from trainkit.formatting import clean, decimals, factor, fixed, percent, seconds, short, size, time_decimals
from trainkit.report.columns import Cell
from trainkit.report.compiler_facts import batch_shapes, graph_sizes, tuned_kernels
from trainkit.report.labels import counted
from trainkit.stats import Estimate

BUSY_FRAC = 0.8  # a GPU that works for less of a step waits for the host too much
WAITS_WITHOUT_CUDAGRAPHS = (
    "compile.mode=reduce-overhead launches the kernels of a graph at once; or take a larger batch"
)
WAITS_WITH_CUDAGRAPHS = (
    "kernels outside of CUDA graphs, as those of the optimizer, are launched one by one; take a larger batch"
)
ROUNDS = "Medians over interleaved rounds of all variants, with the lowest and the highest round."
NO_GAIN = "The backend generates no code, so its gain is not measured; compile.backend=inductor does."
FIX_FIRST = "the code after it was not diagnosed, fix it and diagnose again"
NUM_LINES = 5  # in the table of the largest
LINE_TITLES = ("line", "operations", "share", "times", "compile s by share", "code")
NOISY = "; the rounds differ too much: is the machine busy?"
# Singular and plural of a kind of finding, if it is not counted by its name.
COUNTED_AS = {
    "recompile": ("cause of recompiles", "causes of recompiles"),
    "CUDA graphs skipped": ("cause of skipped CUDA graphs", "causes of skipped CUDA graphs"),
}


def diagnosis_title(diagnosis: Diagnosis) -> str:
    """The network, data and settings that were diagnosed."""
    work = f"{diagnosis.model} on {diagnosis.data}, batch {fixed(diagnosis.batch_size, 0)}"
    settings = [f"mode {diagnosis.compile_mode}", diagnosis.precision, *diagnosis.overrides]
    return clean(f"{work}, {', '.join(settings)}")


def finding_counts(diagnosis: Diagnosis) -> str:
    """The number of findings of each kind, as a sentence."""
    counter = Counter(finding.kind for finding in diagnosis.findings)
    counts = [_kind_count(kind, counter[kind]) for kind in FINDING_KINDS if counter[kind]]
    fails = any(phase.error for phase in diagnosis.phases)
    if counts and fails:
        return f"It fails, see below. Found up to there: {', '.join(counts)}."
    if counts:
        return f"Found: {', '.join(counts)}."
    if fails:
        return "Found: nothing, up to the failure."
    return "Nothing to fix: no graph break, no recompile, no CUDA graph skipped."


def _kind_count(kind: str, count: int) -> str:
    singular, plural = COUNTED_AS.get(kind, (kind, f"{kind}s"))
    if count == 1:
        return f"1 {singular}"
    return f"{count} {plural}"


def phase_rows(phases: Sequence[Phase]) -> list[dict[str, Cell]]:
    """The table of phases: the cells of each, by the title of their column. Columns without a figure are left out."""
    rows = [_phase_cells(phase) for phase in phases]
    shown = ["phase", "graphs"]
    for row in rows:
        shown += [title for title, cell in row.items() if cell.text != "-"]
    return [{title: cell for title, cell in row.items() if title in shown} for row in rows]


def _phase_cells(phase: Phase) -> dict[str, Cell]:
    times = [time.value for time in (phase.step_time_ms, phase.eager_step_time_ms) if time]
    digits = time_decimals(times, 3)
    graphs = Cell(fixed(phase.num_graphs, 0))
    if phase.recompile_limit_hit:
        graphs = Cell(graphs.text, "limit reached")
    optimizer_frac = None
    if phase.name == "training":
        optimizer_frac = phase.optimizer_frac
    return {
        "phase": Cell(clean(phase.name)),
        "graphs": graphs,
        "step ms": _estimate_cell(phase.step_time_ms, lambda ms: fixed(ms, digits)),
        "eager ms": _estimate_cell(phase.eager_step_time_ms, lambda ms: fixed(ms, digits)),
        "gain": _gain_cell(phase.gain),
        "compiled share": _estimate_cell(phase.compiled_frac, percent),
        "optimizer": _estimate_cell(optimizer_frac, percent),
    }


def _gain_cell(gain: Estimate | None) -> Cell:
    cell = _estimate_cell(gain, lambda value: f"{factor(value)}x")
    if gain is not None and gain.low <= 1 <= gain.high:
        return Cell("none measurable", cell.range)
    return cell


def _estimate_cell(estimate: Estimate | None, text: Callable[[float], str]) -> Cell:
    if estimate is None:
        return Cell("-")
    return Cell(text(estimate.value), f"{text(estimate.low)} to {text(estimate.high)}")


def rounds_note(phases: Iterable[Phase]) -> str:
    """How the figures of the phases were measured; "" if nothing was."""
    measured = [phase for phase in phases if phase.step_time_ms]
    if not measured:
        return ""
    if any(phase.gain for phase in measured):
        return ROUNDS
    return f"{ROUNDS}\n{NO_GAIN}"


def device_use(phase: Phase, compile_mode: str) -> str:
    """The share of the compiled step in which the GPU works, and a remedy if it waits; "" if that was not measured."""
    busy_frac = phase.device_busy_frac
    if busy_frac is None:
        return ""
    cell = _estimate_cell(busy_frac, percent)
    sentence = f"{phase.name}: the GPU works for {cell.text} of the compiled step ({cell.range})"
    if busy_frac.high >= BUSY_FRAC:
        return f"{sentence}."
    remedy = WAITS_WITHOUT_CUDAGRAPHS
    if compile_mode in CUDAGRAPH_MODES:
        remedy = WAITS_WITH_CUDAGRAPHS
    return f"{sentence} and waits for the host in the rest: {remedy}."


def phase_facts(phase: Phase) -> list[str]:
    """Sentences on the graphs of a phase, on the kernels of its step and on its memory, as far as they are known."""
    facts = []
    sizes = graph_sizes(phase.graph_sizes)
    if sizes:
        facts.append(f"graphs of {sizes}")
    if phase.compile_s:
        cache = f" (cache {phase.cache_found})" if phase.cache_found else ""
        facts.append(f"compiled in {seconds(phase.compile_s)}{cache}")
    kernels = tuned_kernels(phase.tuned_kernels)
    if kernels:
        facts.append(f"autotuned {kernels}")
    if phase.num_kernels is not None:
        started = f"started by {counted(phase.num_launches, 'call')} of the host"
        facts.append(f"{counted(phase.num_kernels, 'kernel')} a compiled step, {started}")
    if phase.peak_reserved_bytes is not None:
        reserved = f"reserves {size(phase.peak_reserved_bytes)} of memory"
        if phase.eager_peak_reserved_bytes is not None:
            reserved += f", in eager {size(phase.eager_peak_reserved_bytes)}"
        facts.append(reserved)
    return [f"{phase.name}: {fact}." for fact in facts]


def finding_title(finding: Finding) -> str:
    return clean(f"{finding.kind}: {finding.cause}, in {' and '.join(finding.phases)}")


def finding_location(finding: Finding, folder: Path | None = None) -> str:
    """file:line, relative to the folder if the file is in it."""
    if finding.file is None:
        return "no line of yours"
    path = Path(finding.file)
    if folder is not None and path.is_relative_to(folder):
        path = path.relative_to(folder)
    return clean(f"{path}:{finding.line}")


def finding_lines(finding: Finding, phases: Sequence[Phase]) -> dict[str, str]:
    """The facts of a finding, each with its title, the remedy second and torch's reason last."""
    lines = {"why": finding.why, "do": finding.remedy}
    if finding.uncompiled:
        lines["note"] = f"because of this all of {finding.uncompiled} runs uncompiled; {FIX_FIRST}"
    elif finding.uncompiled_after:
        lines["note"] = f"because of this {finding.uncompiled_after} runs uncompiled from here on; {FIX_FIRST}"
    cost = finding_cost(finding, phases)
    if cost:
        lines["cost"] = cost
    memory = break_memory(finding, phases)
    if memory:
        lines["memory"] = memory
    if finding.reason:
        lines["torch"] = short(finding.reason)
    return {name: clean(line) for name, line in lines.items()}


def finding_cost(finding: Finding, phases: Iterable[Phase]) -> str:
    """The cost of the recompiles or of the graph break; "" if it is unknown."""
    if finding.num_recompiles:
        return recompile_cost(finding)
    if finding.operations_frac is not None:
        return loop_cost(finding, phases)
    return break_cost(finding, phases)


def loop_cost(finding: Finding, phases: Iterable[Phase]) -> str:
    """What an unrolled loop takes of the graphs and of their compile, of which torch gives no time by line."""
    assert finding.operations_frac is not None
    cost = f"{counted(finding.num_repeats, 'time')} in the graph, {percent(finding.operations_frac)} of its operations"
    compile_s = [phase.compile_s for phase in phases if phase.name in finding.phases]
    if not compile_s or compile_s[-1] is None:
        return cost
    return f"{cost}; by this share {seconds(finding.operations_frac * compile_s[-1])} of the compile"


def recompile_cost(finding: Finding) -> str:
    cost = counted(finding.num_recompiles, "recompile")
    if finding.recompile_s is not None:
        cost += f", {seconds(finding.recompile_s)}"
    if finding.recompile_shapes:
        batches = [batch_shapes(shapes) for shapes in finding.recompile_shapes]
        cost += f", by batches of {'; '.join(batches)}"
    return cost


def break_cost(finding: Finding, phases: Iterable[Phase]) -> str:
    """The time that a graph break costs a step, with its interval; "" if nobody measured it."""
    if finding.cost_unknown is not None:
        return f"not measured: {finding.cost_unknown}"
    cost = finding.cost_ms
    if cost is None:
        return ""
    digits = decimals([cost.value, cost.high - cost.low], 2)
    value, interval = fixed(cost.value, digits), f"{fixed(cost.low, digits)} to {fixed(cost.high, digits)} ms"
    step_time_ms, phase_name = None, ""
    for phase in phases:
        if phase.step_time_ms and phase.name in finding.phases:
            step_time_ms, phase_name = phase.step_time_ms.value, phase.name  # the last such phase
    noise = ""
    if step_time_ms is not None and cost.high - cost.low > step_time_ms:
        noise = NOISY
    if cost.low <= 0 <= cost.high:
        return f"no measurable difference ({interval}){noise}"
    if cost.high < 0:
        return f"none, the step is slower without it: {value} ms ({interval}){noise}"
    share = ""
    if step_time_ms:
        share = f", {percent(cost.value / step_time_ms)} of the {phase_name} step"
    return f"{value} ms ({interval}){share}{noise}"


def break_memory(finding: Finding, phases: Iterable[Phase]) -> str:
    """The memory that a step reserves with a graph break and without it; "" if it was not measured."""
    without, reserved = finding.peak_reserved_bytes_without, None
    for phase in phases:
        if phase.name in finding.phases and phase.peak_reserved_bytes is not None:
            reserved = phase.peak_reserved_bytes  # of the last such phase, as the cost
    if without is None or reserved is None:
        return ""
    return f"reserves {size(reserved)}, {size(without)} without it"


def line_table(phases: Sequence[Phase]) -> tuple[str, list[list[str]]]:
    """The largest source lines of the last phase that has several: its name, and for each the cells of LINE_TITLES:
    its operations and their share, how often it is in the graphs, and the seconds of the compile by this share."""
    for phase in reversed(phases):
        sizes = phase.line_sizes or []
        if len(sizes) < 2:
            continue
        num_operations = sum(line.num_operations for line in sizes)
        rows = []
        for line in sizes[:NUM_LINES]:
            share = line.num_operations / num_operations
            spent = None if phase.compile_s is None else share * phase.compile_s
            place = f"{Path(line.file).name}:{line.line}" if line.file else "-"
            counts = [fixed(line.num_operations, 0), percent(share), fixed(line.num_repeats, 0)]
            rows.append([clean(place), *counts, fixed(spent, 2), clean(line.code)])
        return phase.name, rows
    return "", []


@dataclass(frozen=True)
class StageTable:
    """The seconds of each stage of a compile, by backend."""

    stages: list[str]
    seconds: dict[str, list[str]]
    totals: dict[str, str]


def stage_table(stages: Mapping[str, Mapping[str, float]]) -> StageTable:
    names: dict[str, None] = {}  # in the order of first appearance
    for spent in stages.values():
        names |= dict.fromkeys(spent)
    cells = {}
    totals = {}
    for backend, spent in stages.items():
        cells[backend] = [fixed(spent.get(name), 2) for name in names]
        totals[backend] = fixed(sum(spent.values()), 2)
    return StageTable(list(names), cells, totals)
