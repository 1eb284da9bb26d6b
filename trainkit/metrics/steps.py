"""Steps as data: their kinds, how long warm-up lasts, and figures of steady steps."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from statistics import median

from trainkit.metrics.ranks import ANY, LARGEST, SUM
from trainkit.stats import percentile

# After a start or a compile allocator, autotuned libraries and CUDA graphs settle: between so many steps and so many.
MIN_WARMUP_STEPS, MAX_WARMUP_STEPS = 3, 50
WINDOW = 5  # steps whose median must have settled


class StepKind(StrEnum):
    COMPILING = "compiling"
    WARMUP = "warm-up"
    STEADY = "steady"
    SUPERSEDED = "superseded"  # of work that ran otherwise at its last step: compiled, and this one uncompiled
    SHORT = "short"  # fewer batches than other steps: the last of an epoch with accumulation


@dataclass
class Step:
    """One optimizer step, one call of the network, or a window of calls, whose `time_ms` is that of one of them. Steps
    with equal `work` do the same work."""

    time_ms: float = field(metadata=LARGEST)
    period_ms: float = field(metadata=LARGEST)  # from the end of the step before it to its own end
    wait_ms: float = field(metadata=LARGEST)  # the part of the period that was a wait for batches
    num_batches: int
    compiled: bool = field(metadata=ANY)  # anything compiled during it
    rank_spread_ms: float = 0.0  # slowest minus fastest rank
    eager: bool = field(default=False, metadata=ANY)  # code ran uncompiled that should be compiled
    num_samples: int = field(default=0, metadata=SUM)
    work: Hashable = None  # rank 0's: ranks have batches of one shape, but for lengths that their own texts give them


def classify(epochs: Sequence[Sequence[Step]]) -> list[list[StepKind]]:
    """The kind of each step of each epoch. Warm-up is counted anew after each compile, across epochs.

    Work that ran both compiled and uncompiled, as with `compile.start`, has steady steps of one way alone: that of its
    last step.
    """
    full = max((step.num_batches for step in chain.from_iterable(epochs)), default=1)
    eager_at_last = {step.work: step.eager for step in chain.from_iterable(epochs)}
    kinds = []
    for steps in epochs:
        kinds.append([_kind_without_warmup(step, full, eager_at_last[step.work]) for step in steps])
    stretch: list[tuple[int, int]] = []  # epoch and position of the full steps since the last compile
    for epoch, steps in enumerate(epochs):
        for position in range(len(steps)):
            if kinds[epoch][position] is StepKind.STEADY:
                stretch.append((epoch, position))
            elif kinds[epoch][position] is StepKind.COMPILING:
                _mark_warmup(epochs, kinds, stretch)
                stretch = []
    _mark_warmup(epochs, kinds, stretch)
    return kinds


def _kind_without_warmup(step: Step, full: int, eager_at_last: bool) -> StepKind:
    if step.compiled:
        return StepKind.COMPILING
    if step.eager != eager_at_last:
        return StepKind.SUPERSEDED
    return StepKind.STEADY if step.num_batches == full else StepKind.SHORT


def _mark_warmup(
    epochs: Sequence[Sequence[Step]], kinds: list[list[StepKind]], stretch: Sequence[tuple[int, int]]
) -> None:
    """Set the kind of the first steps of a stretch to warm-up."""
    steps = [epochs[epoch][position] for epoch, position in stretch]
    for epoch, position in stretch[: num_warmup(relative_times(steps))]:
        kinds[epoch][position] = StepKind.WARMUP


def steady(steps: Sequence[Step], kinds: Sequence[StepKind]) -> list[Step]:
    """The steady steps of an epoch."""
    return [step for step, kind in zip(steps, kinds, strict=True) if kind is StepKind.STEADY]


def num_warmup(times_ms: Sequence[float]) -> int:
    """The number of steps that are warm-up, after a start or a compile.

    Warm-up lasts until the median of WINDOW steps in a row lies within the middle 80 % of the later half of all steps,
    and the first of them is not above it: at least MIN_WARMUP_STEPS, at most MAX_WARMUP_STEPS or half of the steps.
    """
    most = max(MIN_WARMUP_STEPS, min(MAX_WARMUP_STEPS, len(times_ms) // 2))
    later_half = times_ms[len(times_ms) // 2 :]
    low, high = percentile(later_half, 10), percentile(later_half, 90)
    if low is None or high is None:
        return 0
    for first in range(MIN_WARMUP_STEPS, most):
        window_ms = percentile(times_ms[first : first + WINDOW], 50)
        if window_ms is not None and low <= window_ms <= high and times_ms[first] <= high:
            return first
    return min(most, len(times_ms))


def times_by_work(steps: Sequence[Step]) -> dict[Hashable, list[float]]:
    """Milliseconds of the steps that do the same work, by their work."""
    times_ms: dict[Hashable, list[float]] = {}
    for step in steps:
        times_ms.setdefault(step.work, []).append(step.time_ms)
    return times_ms


def relative_times(steps: Sequence[Step]) -> list[float]:
    """The time of each step over the median of the steps that do the same work."""
    medians_ms = {work: median(times_ms) for work, times_ms in times_by_work(steps).items()}
    return [step.time_ms / medians_ms[step.work] for step in steps]


def typical_time_ms(epochs: Sequence[Sequence[Step]], steady_epochs: Sequence[Sequence[Step]]) -> float | None:
    """The median time of steady steps that do the same work, averaged over all steps of epochs with steady ones.

    A plain median over two shapes would jump from one to the other with the few steps that are left out because they
    compiled. Work without a steady step does not count. None without a steady step.
    """
    steps = _typical_steps(epochs, steady_epochs)
    if not steps:
        return None
    num_steps = Counter(step.work for step in steps)
    times_ms = times_by_work(list(chain.from_iterable(steady_epochs)))
    return sum(num_steps[work] * median(times) for work, times in times_ms.items()) / len(steps)


def typical_num_samples(epochs: Sequence[Sequence[Step]], steady_epochs: Sequence[Sequence[Step]]) -> float | None:
    """The mean number of samples of the steps that `typical_time_ms` averages. None without a steady step."""
    steps = _typical_steps(epochs, steady_epochs)
    if not steps:
        return None
    return sum(step.num_samples for step in steps) / len(steps)


def _typical_steps(epochs: Sequence[Sequence[Step]], steady_epochs: Sequence[Sequence[Step]]) -> list[Step]:
    """The steps of epochs with steady ones, without work that has no steady step."""
    steady_work = {step.work for step in chain.from_iterable(steady_epochs)}
    typical = []
    for steps, steady_steps in zip(epochs, steady_epochs, strict=True):
        if steady_steps:
            typical += [step for step in steps if step.work in steady_work]
    return typical


def total_period_ms(steps: Sequence[Step]) -> float:
    """Milliseconds of the steps with the time between them."""
    return sum(step.period_ms for step in steps)


def samples_per_s(steps: Sequence[Step]) -> float | None:
    """Samples over the time of the steps with the time between them; None without a step."""
    if not steps:
        return None
    return sum(step.num_samples for step in steps) / total_period_ms(steps) * 1e3
