"""EpochRecord: the measurements of one epoch of a run."""

from dataclasses import dataclass

from trainkit.results.columns import GIB, REQUIRED, OverRanks, column, columns

LARGEST_OF_RANKS = {"over_ranks": OverRanks.LARGEST}


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch, as it is written to a line of `epochs.jsonl`. Times and speed of steps are of its steady steps."""

    epoch: int = column(REQUIRED, "Number of the epoch, from 0.", logged="epoch")
    train_time_s: float = column(
        REQUIRED,
        "Training time, without validation and the checkpoint after it.",
        unit="s",
        logged="epoch/train_time_s",
        **LARGEST_OF_RANKS,
    )
    val_time_s: float | None = column(None, "Validation time.", unit="s", logged="epoch/val_time_s", **LARGEST_OF_RANKS)
    compile_time_s: float = column(
        REQUIRED, "Time of compiles.", unit="s", logged="epoch/compile_time_s", **LARGEST_OF_RANKS
    )
    num_steps: int = column(REQUIRED, "Steps.", unit="steps")
    num_samples: int = column(REQUIRED, "Samples.", unit="samples", over_ranks=OverRanks.SUM)
    step_time_ms_p50: float | None = column(None, "Median time of a steady step.", unit="ms", **LARGEST_OF_RANKS)
    samples_per_s: float | None = column(
        None, "Samples over the time of the steady steps.", unit="samples/s", over_ranks=OverRanks.SUM,
        logged="epoch/samples_per_s",
    )  # fmt: skip
    peak_allocated_bytes: int = column(
        REQUIRED, "Peak memory of tensors.", unit="bytes", logged="epoch/peak_allocated_gib", **LARGEST_OF_RANKS
    )
    peak_reserved_bytes: int = column(
        REQUIRED,
        "Peak memory of the caching allocator.",
        unit="bytes",
        logged="epoch/peak_reserved_gib",
        **LARGEST_OF_RANKS,
    )
    peak_device_bytes: int = column(
        REQUIRED,
        "Peak memory of the process on the device.",
        unit="bytes",
        logged="epoch/peak_device_gib",
        **LARGEST_OF_RANKS,
    )
    train_loss: float | None = column(None, "Mean training loss.", logged="train/loss", over_ranks=OverRanks.MEAN)
    val_loss: float | None = column(
        None, "Mean validation loss; None in an epoch without a validation.", logged="val/loss",
        over_ranks=OverRanks.MEAN,
    )  # fmt: skip
    val_accuracy: float | None = column(
        None, "Fraction of the validation targets that were predicted, if that is the metric.",
        over_ranks=OverRanks.MEAN,
    )  # fmt: skip
    metric_name: str | None = column(None, "Metric of the validation: `accuracy`, or its class.")
    metric_higher_is_better: bool | None = column(None, "Direction of the metric.")
    val_metric: float | None = column(None, "The metric over all of the validation.", logged="val/{metric_name}")
    num_restarts: int = column(0, "Restarts by torchrun or by a cluster before the epoch was trained.")
    num_steady_steps: int = column(0, "Steady steps.", unit="steps")
    num_skipped_steps: int | None = column(
        None, "Steps skipped because a gradient overflowed fp16.", unit="steps", logged="epoch/num_skipped_steps"
    )


def logged_values(record: EpochRecord) -> dict[str, float]:
    """The measured values of an epoch, by the names that loggers get."""
    values = {}
    for measured in columns(EpochRecord).values():
        value = getattr(record, measured.name)
        if not measured.logged or value is None:
            continue
        if measured.logged.endswith("_gib"):
            value = value / GIB
        values[measured.logged.format(metric_name=record.metric_name)] = value
    return values
