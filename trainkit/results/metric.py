"""The metric of a row or an epoch record, of whatever version."""

from dataclasses import dataclass

from trainkit.results.epoch import EpochRecord
from trainkit.results.row import Row

ACCURACY = "accuracy"  # the share of right answers


@dataclass(frozen=True)
class MeasuredMetric:
    """The metric of a validation: its name, its value (None if it was not measured) and its direction."""

    name: str
    value: float | None
    higher_is_better: bool

    @property
    def is_share(self) -> bool:
        """Whether it is the share of right answers."""
        return self.name == ACCURACY


def metric_of(record: Row | EpochRecord) -> MeasuredMetric | None:
    """The metric; None without one. Before records named their metric it was accuracy."""
    if record.metric_name is not None:
        return MeasuredMetric(record.metric_name, record.val_metric, bool(record.metric_higher_is_better))
    if record.val_accuracy is not None:
        return MeasuredMetric(ACCURACY, record.val_accuracy, True)
    return None
