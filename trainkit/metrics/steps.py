"""What steps and epochs took, as data: which steps have settled, what they make together, what all ranks see."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from trainkit.metrics.memory import Memory, highest

# After a start or a compile allocator, autotuned libraries and CUDA graphs settle: between so many steps and so many.
MIN_WARMUP_STEPS, MAX_WARMUP_STEPS = 3, 50
WINDOW = 5  # steps whose median must have settled


@dataclass
class Step:
    """One optimizer step: its own milliseconds, those from the end of the step before it to its own end (its period),
    how much of that was a wait for batches, its number of batches, whether anything compiled, how much longer the
    slowest rank took for it than the fastest, whether anything that should be compiled ran uncompiled, and its number
    of samples, over all ranks. Steps that are `alike` do the same work: their times can be compared."""

    time_ms: float
    period_ms: float
    wait_ms: float
    num_batches: int
    compiled: bool
    rank_spread_ms: float = 0.0
    eager: bool = False
    num_samples: int = 0
    alike: Hashable = None


@dataclass
class EpochCost:
    """What one epoch cost, over all ranks: the slowest rank's time, the hungriest rank's memory."""

    complete: bool  # it was trained to its end, not broken off
    train_time_s: float
    val_time_s: float | None
    compile_s: dict[str, float]  # by what was compiled: row.COMPILE_KINDS
    compiled_in_validation: bool
    steps: list[Step]
    compile_peak: Memory | None  # of the steps and validations in which something compiled; None where nothing did
    steady_peak: Memory | None  # of the others

    @property
    def compile_time_s(self) -> float:
        return sum(self.compile_s.values())

    @property
    def peak(self) -> Memory:
        peak = highest([self.compile_peak, self.steady_peak])
        assert peak is not None  # an epoch has a step
        return peak

    @property
    def compiled_in_training(self) -> bool:
        return any(step.compiled for step in self.steps)


def slowest(ranks: list[EpochCost]) -> EpochCost:
    """The epoch as a user of all ranks sees it: in each figure the rank with the most."""
    val_times = [rank.val_time_s for rank in ranks if rank.val_time_s is not None]
    return EpochCost(
        all(rank.complete for rank in ranks),
        max(rank.train_time_s for rank in ranks),
        max(val_times, default=None),
        max((rank.compile_s for rank in ranks), key=lambda parts: sum(parts.values())),
        any(rank.compiled_in_validation for rank in ranks),
        [
            Step(
                max(rank.time_ms for rank in step),
                max(rank.period_ms for rank in step),
                max(rank.wait_ms for rank in step),
                step[0].num_batches,
                any(rank.compiled for rank in step),
                max(rank.time_ms for rank in step) - min(rank.time_ms for rank in step),
                any(rank.eager for rank in step),
                sum(rank.num_samples for rank in step),
                step[0].alike,  # ranks have batches of one shape, but for lengths that their own texts give them
            )
            for step in zip(*(rank.steps for rank in ranks), strict=True)
        ],
        highest([rank.compile_peak for rank in ranks]),
        highest([rank.steady_peak for rank in ranks]),
    )


def relative(steps: Sequence[Step]) -> list[float]:
    """The time of each step over the median of those that are alike."""
    times_ms: dict[Hashable, list[float]] = {}
    for step in steps:
        times_ms.setdefault(step.alike, []).append(step.time_ms)
    middle_ms = {alike: median(times) for alike, times in times_ms.items()}
    return [step.time_ms / middle_ms[step.alike] for step in steps]


def num_warmup(times_ms: Sequence[float]) -> int:
    """How many steps after a start or a compile are warm-up: until the median of WINDOW steps in a row lies within the
    middle 80 % of the later half of them all, and the first of them is not above it. At least MIN_WARMUP_STEPS, at most
    MAX_WARMUP_STEPS or half of them."""
    most = max(MIN_WARMUP_STEPS, min(MAX_WARMUP_STEPS, len(times_ms) // 2))
    later = times_ms[len(times_ms) // 2 :]
    low, high = percentile(later, 10), percentile(later, 90)
    for first in range(MIN_WARMUP_STEPS, most):
        window = percentile(times_ms[first : first + WINDOW], 50)
        if low <= window <= high and times_ms[first] <= high:  # type: ignore[operator]  # there are steps
            return first
    return min(most, len(times_ms))


def periods_ms(steps: Sequence[Step]) -> float:
    """Milliseconds of the steps with all that was between them."""
    return sum(step.period_ms for step in steps)


def samples_per_s(steps: Sequence[Step]) -> float | None:
    """Samples a second while the steps ran, all that was between them included, or None of no steps."""
    if not steps:
        return None
    return sum(step.num_samples for step in steps) / periods_ms(steps) * 1e3


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile by linear interpolation, or None of nothing."""
    return float(torch.quantile(torch.tensor(values, dtype=torch.float64), q / 100)) if values else None
