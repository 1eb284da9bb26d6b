"""A job of a race: what is requested, and what its row says of its arm."""

from dataclasses import dataclass

from trainkit.analysis.dropping import FOREIGN_PROCESS, why_dropped
from trainkit.results.ledger import Measurement
from trainkit.results.metric import metric_of
from trainkit.results.row import Row
from trainkit.tuning.goal import Goal, throughput
from trainkit.tuning.space import Overrides

# A comparison with eager that did not end, by the status of its row.
UNFINISHED = {
    "timeout": "the comparison takes longer than the share of a job",
    "oom": "the comparison takes more memory than there is",
}


@dataclass(frozen=True)
class JobRequest:
    """A job to run: the name and the overrides of its arm, the number of the arm's earlier jobs, whether it is one of
    the final, whether to compare its numbers with eager's, its time limit in seconds, whether that is the end of the
    budget: less than the arm's share, and whether the arm has figures."""

    name: str
    overrides: Overrides
    repeat: int
    is_final: bool
    check: bool
    timeout_s: float
    ends_budget: bool = False
    has_figures: bool = False


def measurement_of(
    row: Row, request: JobRequest, goal: Goal, coldest_s: float, *, wall_s: float, used_s: float
) -> Measurement:
    """The measurement of a job: its figure, or the reason why it has none.

    `coldest_s` is the longest compile of the arm's graphs so far. A process beside the job, the end of the budget, and
    a comparison with eager that does not end are not the arm's fault; every other reason excludes the arm.
    """
    compile_s = all_compile_s(row)
    # The row of a job may have been there already, after a kill: it did not take its time again.
    wall_s = max(wall_s, _least_job_s(row))
    reason = why_dropped(row)
    is_ended = row.status == "timeout" and wall_s >= request.timeout_s
    is_cut_off = is_ended and request.ends_budget
    unchecked = None
    if request.check and not is_cut_off:
        unchecked = why_unchecked(row, request.has_figures)
    excludes = reason is not None and reason != FOREIGN_PROCESS and not is_cut_off and unchecked is None
    if reason is None:
        reason = goal.violation(row)
        excludes = reason is not None
    figure = None
    if reason is None:
        figure = goal.figure(row, max(coldest_s, compile_s or 0.0))
    return Measurement(
        overrides=list(request.overrides),
        repeat=request.repeat,
        is_final=request.is_final,
        run_id=row.run_id,
        status=row.status,
        wall_s=wall_s,
        used_s=used_s,
        figure=figure,
        reason=reason,
        excludes=excludes,
        step_time_ms=row.step_time_ms,
        samples_per_s=throughput(row),
        compile_s=compile_s,
        before_inductor_s=before_inductor_s(row),
        peak_bytes=row.peak_device_bytes,
        batch_size=row.batch_size,
        num_graph_breaks=row.num_graph_breaks,
        device_name=row.device_name,
        torch_version=row.torch_version,
        seed=row.seed,
        metric=metric_of(row),
        num_val_targets=row.num_val_targets,
        cache_found=row.cache_found,
        check=request.check,
        unchecked=unchecked,
        share_s=request.timeout_s if is_ended and not request.ends_budget else None,
    )


def why_unchecked(row: Row, has_figures: bool) -> str | None:
    """Why the numbers of a row were not compared with eager's; None if they were, or for a run that failed before.

    An arm that has figures can train: then it is the comparison that outlasts the time limit or the memory.
    """
    if has_figures and row.status in UNFINISHED:
        return UNFINISHED[row.status]
    if row.status != "ok" or row.check_passed is not None:
        return None
    return row.check_reason or "check=true does not go with these settings"


def all_compile_s(row: Row) -> float | None:
    """The time that a job compiled, its start-up included."""
    if row.compile_time_s is None:
        return None
    return row.compile_time_s + (row.compile_startup_s or 0.0)


def _least_job_s(row: Row) -> float:
    """The time that a job took at least: that of its steps, with compiles among them, after its start-up, or that of
    all compiles."""
    steps_s = (row.compile_startup_s or 0.0) + (row.steps_time_s or 0.0)
    return max(steps_s, all_compile_s(row) or 0.0)


def before_inductor_s(row: Row) -> float | None:
    """The part of `all_compile_s` that no mode changes: start-up, capture, differentiation."""
    if row.before_inductor_s is None:
        return None
    return row.before_inductor_s + (row.compile_startup_s or 0.0)
