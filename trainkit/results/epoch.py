"""EpochRecord: the measurements of one epoch of a run."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch of a run. Train time is without validation, checkpoints and logging; samples over all processes.

    `step_time_ms_p50` and `samples_per_s` are of the epoch's steady steps, None where it has none.
    """

    epoch: int
    train_time_s: float
    val_time_s: float | None = None
    compile_time_s: float
    num_steps: int
    num_samples: int
    step_time_ms_p50: float | None = None
    samples_per_s: float | None = None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_device_bytes: int
    train_loss: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None
    num_steady_steps: int = 0
    num_skipped_steps: int | None = None
