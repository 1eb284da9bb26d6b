"""Progress: how far a run is, for whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Progress:
    """How far a run is. The run writes the fields while it trains, without a lock; a thread that shows them reads.

    `on_stage` is called with what the run does next, at each of its stages."""

    on_stage: Callable[[str], None] = lambda stage: None

    phase: str = "starting"  # training, validating, finishing
    epoch: int = 0  # from 0
    max_epochs: int = 0
    step: int = 0  # steps of this epoch that are done
    steps_per_epoch: int | None = None  # None: the data do not tell
    steps_left: int | None = None  # of the run
    num_steps: int = 0  # done since the start
    num_samples: int = 0  # trained on since the start, by all ranks
    loss: float | None = None  # of a batch of late
    wants_loss: bool = False  # whoever shows it would like a newer loss
    compiling: str | None = None  # "forward graph 1"
    num_tuned: int = 0  # operations that autotuning has begun with, of this compile
    num_kernels: int = 0  # that it tries for the last of them

    def tune(self, num_kernels: int) -> None:
        """Autotuning begins with an operation, for which it tries so many kernels."""
        self.num_tuned += 1
        self.num_kernels = num_kernels
