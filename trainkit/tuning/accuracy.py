"""The metric of the validation as a constraint, where the jobs of a race validate."""

from collections.abc import Sequence
from statistics import mean

from trainkit.analysis.candidates import values_differ
from trainkit.formatting import fixed
from trainkit.results.ledger import Measurement

LEAST_SEEDS = 3  # of each side: one seed proves no difference of a metric


def worse_metric(jobs: Sequence[Measurement], base_jobs: Sequence[Measurement]) -> str | None:
    """What is worse than the base by more than chance: than seeds, or of accuracy validation sets of that size. None
    before both have LEAST_SEEDS."""
    values, base_values = _job_metrics(jobs), _job_metrics(base_jobs)
    metric = base_jobs[0].metric if base_jobs else None
    if metric is None or min(num_seeds(jobs), num_seeds(base_jobs)) < LEAST_SEEDS:
        return None
    sizes = [job.num_val_targets for job in (*jobs, *base_jobs) if job.num_val_targets]
    differs = values_differ(values, base_values, metric.is_share, sizes)
    is_higher = mean(values) > mean(base_values)
    if not differs or is_higher == metric.higher_is_better:
        return None
    return f"{metric.name} {fixed(mean(values), 4)} is worse than {fixed(mean(base_values), 4)} at first"


def num_seeds(jobs: Sequence[Measurement]) -> int:
    """The seeds with which jobs have measured the metric."""
    return len({job.seed for job in jobs if _metric_value(job) is not None})


def _job_metrics(jobs: Sequence[Measurement]) -> list[float]:
    """The metrics of the jobs that have a figure."""
    values = []
    for job in jobs:
        value = _metric_value(job)
        if value is not None:
            values.append(value)
    return values


def _metric_value(job: Measurement) -> float | None:
    """The metric of a job that has a figure; None if it did not validate."""
    if job.figure is None or job.metric is None:
        return None
    return job.metric.value
