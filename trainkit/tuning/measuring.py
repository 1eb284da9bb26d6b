"""A job of a race: what is requested, and what its row says of its arm."""

from dataclasses import dataclass

from trainkit.analysis.dropping import FOREIGN_PROCESS, why_dropped
from trainkit.results.ledger import Measurement
from trainkit.results.metric import metric_of
from trainkit.results.row import Row
from trainkit.tuning.goal import Goal, throughput
from trainkit.tuning.space import Overrides

# What a row says of the time limit that ended its job.
BUDGET_SHARE, BUDGET_END = "its share of hydra.sweeper.budget_min", "the end of hydra.sweeper.budget_min"
# A comparison with eager that did not end, by the status of its row.
UNFINISHED = {
    "timeout": "the comparison outlasts its time limit",
    "oom": "the comparison takes more memory than there is",
}


@dataclass(frozen=True)
class JobRequest:
    """A job to run: the name and the overrides of its arm, the number of the arm's earlier jobs, whether it is one of
    the final, whether to compare its numbers with eager's, its time limit in seconds, which is its share of the budget
    or the user's limit, the seconds until the budget ends it, and whether the arm has figures."""

    name: str
    overrides: Overrides
    repeat: int
    is_final: bool
    check: bool
    timeout_s: float
    budget_left_s: float
    has_figures: bool = False


@dataclass(frozen=True)
class JobResult:
    """The row of a job, the seconds that the job took, and those that it waited for the imports of new servers before
    that. A row that was there already, after a kill, took none."""

    row: Row
    wall_s: float
    imports_s: float = 0.0


def measurement_of(
    result: JobResult, request: JobRequest, goal: Goal, coldest_s: float, *, used_s: float
) -> Measurement:
    """The measurement of a job: its figure, or the reason why it has none.

    `coldest_s` is the longest compile of the arm's graphs so far. A process beside the job, the end of the budget, and
    a comparison with eager that does not end are not the arm's fault; every other reason excludes the arm.
    """
    row = result.row
    compile_s = all_compile_s(row)
    reason = why_dropped(row)
    is_forgiven = reason == FOREIGN_PROCESS or _is_cut_off(row) or _is_unfinished(row, request)
    excludes = reason is not None and not is_forgiven
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
        wall_s=max(result.wall_s, _least_job_s(row)),
        imports_s=result.imports_s,
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
        unchecked=_why_unchecked(row, request, figure),
        share_s=request.timeout_s if row.status == "timeout" and not _is_cut_off(row) else None,
    )


def _is_cut_off(row: Row) -> bool:
    """Whether the end of the budget ended a job."""
    return row.status == "timeout" and BUDGET_END in (row.error or "")


def _is_unfinished(row: Row, request: JobRequest) -> bool:
    """Whether the comparison with eager did not end. An arm that has figures can train."""
    is_checked = request.check and request.has_figures
    return is_checked and row.status in UNFINISHED and not _is_cut_off(row)


def _why_unchecked(row: Row, request: JobRequest, figure: float | None) -> str | None:
    """Why the numbers of a job were not compared with eager's, if that is known for good."""
    if _is_unfinished(row, request):
        return UNFINISHED[row.status]
    if not request.check or figure is None or row.check_passed is not None:
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
