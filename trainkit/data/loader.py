"""The loader of batches. A batch is a function of seed, epoch, rank and its number alone."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, get_worker_info

from trainkit.data.workers import begin_worker, check_shared_memory, receiving_batches, sharing_memory
from trainkit.inputs import Batch

Collate = Callable[[Any], Batch]


@dataclass(frozen=True)
class PlannedBatch:
    """The samples of a batch, and the seed of the random numbers that a worker draws for them."""

    seed: str
    indices: list[int]


class EpochPlan(BatchSampler):
    """The batches of an epoch, without the first `num_skipped`. Lightning calls `set_epoch` of its sampler."""

    def __init__(self, sampler: Sampler[int] | range, batch_size: int, drop_last: bool, seed: str):
        super().__init__(sampler, batch_size, drop_last)
        self.seed = seed
        self.num_skipped = 0

    def __iter__(self) -> Iterator[Any]:
        epoch = getattr(self.sampler, "epoch", 0)  # a sequential sampler has none
        num_skipped, self.num_skipped = self.num_skipped, 0
        for number, indices in enumerate(super().__iter__()):
            if number >= num_skipped:
                yield PlannedBatch(f"{self.seed} {epoch} {number}", indices)


class PlannedDataset(Dataset[Any]):
    """Fetches planned batches from a data set.

    A worker draws the random numbers of a batch from its seed, so they depend neither on the number of workers nor on
    the batches before. Without workers they come from the process's own stream, which is seeded for each epoch:
    seeding for each batch would cost the process that trains.
    """

    def __init__(self, dataset: Dataset[Any]):
        self.dataset = dataset

    def __getitems__(self, batch: PlannedBatch) -> Any:
        if get_worker_info() is not None:
            seed = random.Random(batch.seed).getrandbits(32)
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
        if hasattr(self.dataset, "__getitems__"):
            return self.dataset.__getitems__(batch.indices)
        return [self.dataset[index] for index in batch.indices]


class EpochLoader(DataLoader[Any]):
    """Loads the batches of an EpochPlan. A new iterator begins when its first batch is taken, not before.

    Lightning makes the first iterator of a fit before it sets the epoch. Workers would begin at once with the batches
    of epoch 0, also in a run that resumes at another epoch.
    """

    def __init__(self, dataset: Dataset[Any], plan: EpochPlan, collate: Collate, num_workers: int, pin_memory: bool):
        if num_workers > 0:
            check_shared_memory(num_workers)
        super().__init__(
            PlannedDataset(dataset),
            batch_sampler=plan,
            collate_fn=collate,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            pin_memory=pin_memory,
            worker_init_fn=begin_worker,
            # Otherwise each new iterator would draw the workers' seed from the global random state.
            generator=torch.Generator(),
        )
        self.plan = plan

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        with sharing_memory(self.num_workers):
            batches = super().__iter__()
        with receiving_batches(self.num_workers):
            yield from batches

    def skip(self, num_batches: int) -> None:
        """Have the next iterator begin behind so many batches."""
        self.plan.num_skipped = num_batches
