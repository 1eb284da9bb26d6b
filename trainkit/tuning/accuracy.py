"""The metric of the validation as a constraint, where the jobs of a race validate."""

from collections.abc import Sequence
from statistics import mean

from trainkit.analysis.candidates import shares_differ
from trainkit.formatting import fixed
from trainkit.results.ledger import Measurement
from trainkit.results.metric import MeasuredMetric
from trainkit.stats import means_differ


def worse_metric(jobs: Sequence[Measurement], base_jobs: Sequence[Measurement]) -> str | None:
    """What is worse than the base by more than chance: than repeats, or of accuracy validation sets of that size."""
    metrics, base_metrics = _metrics(jobs), _metrics(base_jobs)
    if not metrics or not base_metrics:
        return None
    values, base_values = _values(metrics), _values(base_metrics)
    if metrics[0].is_share:
        sizes = [job.num_val_targets for job in (*jobs, *base_jobs) if job.num_val_targets]
        differs = shares_differ(values, base_values, sizes)
    else:
        differs = means_differ(values, base_values) is True
    is_higher = mean(values) > mean(base_values)
    if not differs or is_higher == metrics[0].higher_is_better:
        return None
    return f"{metrics[0].name} {fixed(mean(values), 4)} is worse than {fixed(mean(base_values), 4)} at first"


def _metrics(jobs: Sequence[Measurement]) -> list[MeasuredMetric]:
    """The metrics of the jobs that have a figure and a metric."""
    metrics = []
    for job in jobs:
        if job.figure is not None and job.metric is not None and job.metric.value is not None:
            metrics.append(job.metric)
    return metrics


def _values(metrics: Sequence[MeasuredMetric]) -> list[float]:
    return [metric.value for metric in metrics if metric.value is not None]
