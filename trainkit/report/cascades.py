"""Labels of a cascade's stages, and of the deadline of its calls."""

from collections.abc import Sequence
from statistics import median

from trainkit.formatting import decimals, fixed, percent, shares, time_decimals
from trainkit.results.facts import Stage
from trainkit.results.row import Row


def served_shares(rows: Sequence[Row]) -> str:
    """The share of calls that each stage served, over the repeats, and its accuracy over all calls, if that is known;
    "" if there is no cascade."""
    first = rows[0]
    if not first.chain:
        return ""
    labels = []
    for number, stage in enumerate(first.chain):
        fracs, accuracies = [], []
        for row in rows:
            repeat = (row.chain or [])[number]
            if repeat.call_frac is not None:
                fracs.append(repeat.call_frac)
            if repeat.accuracy is not None:
                accuracies.append(repeat.accuracy)
        served = shares(fracs) if fracs else "-"
        if accuracies:
            served += f" (accuracy {fixed(median(accuracies), 3)})"
        labels.append(f"{stage_label(stage, first)} {served}")
    return f"served by {', '.join(labels)}"


def stage_label(stage: Stage, row: Row) -> str:
    """The settings of a stage, and its effective mode if that is not the requested one."""
    settings = stage.settings or f"{row.model} {row.compile_mode}"
    if stage.effective_mode in (None, stage.compile_mode):
        return settings
    return f"{settings} (effective {stage.effective_mode}: {stage.effective_mode_reason})"


def expected_ms(stage: Stage) -> str:
    """The milliseconds that the cascade expects of a stage, from the shortest to the longest over input shapes."""
    times_ms = [expected.time_ms for expected in stage.expected_ms if expected.time_ms is not None]
    if not times_ms:
        return "-"
    digits = time_decimals(times_ms, 4)
    low, high = fixed(min(times_ms), digits), fixed(max(times_ms), digits)
    if low == high:
        return low
    return f"{low} to {high}"


def deadline_labels(row: Row) -> list[str]:
    """Lines on the requests: which share missed the deadline, response times, emergencies, late calls; none if the run
    has no deadline."""
    if row.deadline_ms is None:
        return []
    deadline = fixed(row.deadline_ms, decimals([row.deadline_ms], 2))
    missed = f"{percent(row.deadline_miss_frac)} of calls missed {deadline} ms"
    times_ms = [row.response_time_ms_p50, row.response_time_ms_p90, row.response_time_ms_p99]
    lines = [missed + _response_text(times_ms)]
    if row.all_calls_miss_frac is not None and row.num_compiling_steps:
        lines.append(f"{percent(row.all_calls_miss_frac)} of all calls, compiles included, missed it")
    if row.emergency_miss_frac is not None:
        times_ms = [row.emergency_time_ms_p50, row.emergency_time_ms_p90, row.emergency_time_ms_p99]
        lines.append(f"{percent(row.emergency_miss_frac)} of emergencies missed it" + _response_text(times_ms))
    if row.late == "fallback":
        lines.append(f"{percent(row.late_call_frac)} of calls were late, and answered by the fastest stage")
    if row.correct_in_time_frac is not None:
        lines.append(f"{percent(row.correct_in_time_frac)} of targets predicted in time")
    return lines


def _response_text(times_ms: Sequence[float | None]) -> str:
    """Response times p50, p90, p99; "" if they are unknown."""
    if times_ms[0] is None:
        return ""
    digits = time_decimals(times_ms, 4)
    p50, p90, p99 = [fixed(time_ms, digits) for time_ms in times_ms]
    return f"; response p50 {p50} ms, p90 {p90} ms, p99 {p99} ms"
