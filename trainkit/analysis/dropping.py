"""Which rows a comparison drops, and why."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainkit.analysis import grouping
from trainkit.results.row import Row

FOREIGN_PROCESS = "measured beside another process on the device (foreign_processes)"
OTHER_NUMBERS = "numbers differ from eager"
WRONG_NUMBERS = "numbers are wrong in another run of this setting"


@dataclass(frozen=True)
class Dropped:
    """Rows of one candidate that a comparison drops for the same reason."""

    label: str
    reason: str
    rows: tuple[Row, ...]


def drop_reasons(rows: Sequence[Row]) -> list[str | None]:
    """For each row why a comparison drops it, or None. A failed check drops all repeats of its candidate that were
    measured with the same versions, on machines of the same kind."""
    wrong = set()
    for row in rows:
        if row.check_passed is False or row.check_gradients_agree is False:
            wrong.add(grouping.machine_key(row))
    reasons = []
    for row in rows:
        reason = why_dropped(row)
        if reason is None and wrong and grouping.machine_key(row) in wrong:
            reason = WRONG_NUMBERS
        reasons.append(reason)
    return reasons


def split_dropped(rows: Sequence[Row]) -> tuple[list[Row], tuple[Dropped, ...]]:
    """The rows that can be compared, and the others by label and reason.

    A run that failed early may not know its machine, so dropped rows belong to no group: their labels tell them from
    all other rows.
    """
    varying = grouping.varying_names(rows)
    long = grouping.long_values(rows, varying)
    comparable = []
    dropped: dict[tuple[str, str], list[Row]] = {}
    for row, reason in zip(rows, drop_reasons(rows), strict=True):
        if reason is None:
            comparable.append(row)
        else:
            dropped.setdefault((grouping.label(row, varying, long), reason), []).append(row)
    groups = []
    for (label, reason), same_reason in dropped.items():
        groups.append(Dropped(label, reason, tuple(same_reason)))
    return comparable, tuple(groups)


def why_dropped(row: Row) -> str | None:
    """Why a comparison drops a row, whatever the other rows are, on one line; None if it keeps the row."""
    if row.status != "ok":
        return _failure(row)
    if row.effective_mode not in (None, row.compile_mode):
        return _other_mode(row.compile_mode, row.effective_mode, row.effective_mode_reason)
    for stage in row.chain or []:
        if stage.effective_mode not in (None, stage.compile_mode):
            other = _other_mode(stage.compile_mode, stage.effective_mode, stage.effective_mode_reason)
            return f"{stage.settings}: {other}"
    if row.foreign_processes:
        return FOREIGN_PROCESS
    if row.check_passed is False:
        return f"{OTHER_NUMBERS}: {row.check_reason or 'check=true found so'}"
    if row.check_gradients_agree is False or row.check_graphs_agree is False:
        return f"the ranks differ: {row.check_ranks_reason}"
    return _unusable_step_time(row)


def _failure(row: Row) -> str:
    lines = (row.error or "").strip().splitlines()
    if not lines:
        return row.status
    error = lines[0].removeprefix(f"{row.status}: ")
    if row.status == "oom":  # the free memory that torch names after the request differs each time
        error = error.split(" GPU ")[0]
    return f"{row.status}: {error}"


def _other_mode(requested: str, effective: str | None, reason: str | None) -> str:
    modes = f"requested {requested}, effective {effective}"
    if not reason:
        return modes
    return f"{modes}: {reason}"


def _unusable_step_time(row: Row) -> str | None:
    step_time = step_time_ms(row)
    if step_time is not None and step_time > 0:
        return None
    if step_time is not None:
        return f"a step time of {step_time} ms is impossible"
    if row.calls_per_window is not None:
        return f"no steady window among its {row.num_steps}: use more, forward.num_calls"
    if row.kind == "forward":
        return f"no steady call among its {row.num_steps}: use more, forward.num_calls"
    return f"no steady step among its {row.num_steps}: train for more steps"


def step_time_ms(row: Row) -> float | None:
    """The step time that compares between rows; rows of schema 1 have steps of one shape, so theirs is the median."""
    if row.step_time_ms is None:
        return row.step_time_ms_p50
    return row.step_time_ms


def step_times_ms(rows: Iterable[Row]) -> list[float]:
    """The step times of the rows that have one."""
    times_ms = []
    for row in rows:
        time_ms = step_time_ms(row)
        if time_ms is not None:
            times_ms.append(time_ms)
    return times_ms
