"""The batch sizes of a race: which fit, and the search for the largest that does, for `data.batch_size=auto`."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from trainkit.config.factors import AUTO, BATCH_SIZE
from trainkit.results.ledger import Measurement
from trainkit.tuning.forecast import Entry
from trainkit.tuning.goal import Goal
from trainkit.tuning.space import ArmSettings, Space, chosen_values, value_in

MOST_DOUBLINGS = 8
CLOSE_SIZES = 1.25  # the smallest batch that does not fit, over the largest that does


@dataclass(frozen=True)
class BatchSizes:
    """The batch sizes of the arms of a race. `entries` are all of its arms with their jobs."""

    space: Space
    goal: Goal

    def fits_by_size(self, entries: Collection[Entry]) -> dict[int, bool]:
        """Whether a batch size fits, for those that were tried by themselves: a job has trained with it, or had too
        little memory, or too few samples for it. A job that was disturbed or ended by its time limit tells nothing."""
        fits = {}
        for entry in entries:
            size = self.size_alone(entry.settings)
            if size is None:
                continue
            if entry.first_figure is not None:
                fits[size] = True
            elif any(self._is_too_large(size, job) for job in entry.jobs):
                fits[size] = False
        return fits

    def fitting(self, entries: Collection[Entry]) -> list[int]:
        """The sizes that fit, of those that were tried by themselves."""
        return [size for size, fits in self.fits_by_size(entries).items() if fits]

    def size_alone(self, settings: ArmSettings) -> int | None:
        """The batch size of an arm that differs from the reference by nothing else."""
        size = value_in(settings.overrides, BATCH_SIZE)
        if size is None and self.space.values(BATCH_SIZE) and self.goal.batch_size is not None:
            size = str(self.goal.batch_size)
        if size is None or self._arm(size).overrides != settings.overrides:
            return None
        return int(size)

    def next_arm(self, entries: Collection[Entry]) -> ArmSettings | None:
        """The arm of the batch size to try next; None if none is searched, or if the largest that fits is known."""
        if self.goal.batch_size is None or AUTO not in self.space.values(BATCH_SIZE):
            return None
        size = next_batch_size(self.goal.batch_size, self.fits_by_size(entries))
        return None if size is None else self._arm(str(size))

    def smaller_arms(self, entries: Collection[Entry]) -> Iterator[ArmSettings]:
        """For each combination whose batch is too large, as with CUDA graphs, its settings with the largest of the
        smaller sizes that fit by themselves."""
        fitting = self.fitting(entries)
        for entry in entries:
            size = value_in(entry.settings.overrides, BATCH_SIZE)
            if size is None or entry.first_figure is not None or self.size_alone(entry.settings) is not None:
                continue
            smaller = [other for other in fitting if other < int(size)]
            if smaller and any(self.is_out_of_memory(job) for job in entry.jobs):
                yield self.space.arm(chosen_values(entry.settings.overrides) | {BATCH_SIZE: str(max(smaller))})

    def _arm(self, size: str) -> ArmSettings:
        return self.space.arm(self.space.reference | {BATCH_SIZE: size})

    def _is_too_large(self, size: int, job: Measurement) -> bool:
        """Whether a job without a figure failed because of its batch size."""
        is_refused = job.status == "failed" and self.is_larger(size)  # the data has fewer samples
        return is_refused or self.is_out_of_memory(job)

    def is_larger(self, size: int) -> bool:
        """Whether a batch is larger than the one that the race begins with."""
        return self.goal.batch_size is not None and size > self.goal.batch_size

    def is_out_of_memory(self, job: Measurement) -> bool:
        """Whether a job took more memory than there is, or than it may."""
        return job.status == "oom" or self.goal.is_too_much(job.peak_bytes)


def next_batch_size(first: int, fits: Mapping[int, bool]) -> int | None:
    """The batch size to try next, None if the largest that fits is known well enough.

    `first` is the size that the race begins with, `fits` has the sizes that were tried. Sizes are doubled until one
    does not fit, or halved until one does, and then halved in between.
    """
    sizes = {first: True} | dict(fits)
    largest = max([size for size, does_fit in sizes.items() if does_fit], default=0)
    too_large = [size for size, does_fit in sizes.items() if not does_fit]
    if not too_large:
        doubled = 2 * largest
        return doubled if doubled <= first * 2**MOST_DOUBLINGS else None
    smallest = min(too_large)
    if largest == 0:
        return smallest // 2 or None
    if smallest <= CLOSE_SIZES * largest:
        return None
    middle = (largest + smallest) // 2
    if middle > 16:
        middle -= middle % 8
    return middle if largest < middle < smallest else None
