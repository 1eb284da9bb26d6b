"""The metric of the validation as a constraint, where the jobs of a race validate."""

from collections.abc import Sequence
from statistics import mean

from trainkit.analysis.candidates import values_differ
from trainkit.formatting import fixed
from trainkit.results.ledger import Measurement


def worse_metric(jobs: Sequence[Measurement], base_jobs: Sequence[Measurement]) -> str | None:
    """What is worse than the base by more than chance: than repeats, or of accuracy validation sets of that size."""
    values, base_values = _job_metrics(jobs), _job_metrics(base_jobs)
    metric = base_jobs[0].metric if base_jobs else None
    if metric is None or not values or not base_values:
        return None
    sizes = [job.num_val_targets for job in (*jobs, *base_jobs) if job.num_val_targets]
    differs = values_differ(values, base_values, metric.is_share, sizes)
    is_higher = mean(values) > mean(base_values)
    if not differs or is_higher == metric.higher_is_better:
        return None
    return f"{metric.name} {fixed(mean(values), 4)} is worse than {fixed(mean(base_values), 4)} at first"


def _job_metrics(jobs: Sequence[Measurement]) -> list[float]:
    """The metrics of the jobs that have a figure."""
    values = []
    for job in jobs:
        if job.figure is not None and job.metric is not None and job.metric.value is not None:
            values.append(job.metric.value)
    return values
