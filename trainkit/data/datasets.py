"""Datasets of the user's own."""

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, Subset

from trainkit.config.errors import ConfigError, refuse
from trainkit.data.batches import num_samples
from trainkit.data.module import DataModule, val_fraction_complaints


class Datasets(DataModule):
    """Batches of map-style torch Datasets: of all samples of `train`, and of `val` to validate on.

    A sample is (inputs, targets), and torch's `default_collate` stacks them, unless `collate` makes a batch (inputs,
    targets) of a list of samples. `train`, `val` and `collate` are functions that make the objects; each is called once
    in a process. Without `val` the seed chooses `val_fraction` of the training samples. Raises ConfigError for a data
    set that has no length or no samples by number.
    """

    def __init__(
        self,
        *,
        train: Callable[[], Dataset[Any]] | None,
        val: Callable[[], Dataset[Any]] | None = None,
        val_fraction: float = 0.1,
        collate: Callable[[], Callable[[list[Any]], Any]] | None = None,
        batch_size: int,
        num_workers: int = 0,
        seed: int = 0,
        inputs: str | None = None,
        **sizes: int,
    ):
        super().__init__(batch_size=batch_size, num_workers=num_workers, seed=seed, inputs=inputs, **sizes)
        if train is None:
            raise ConfigError("data.train._target_ = null: names no Dataset; set data.train._target_=YOUR_MODULE.CLASS")
        if val is None:
            refuse(val_fraction_complaints(val_fraction))
        self._make_train, self._make_val, self._val_fraction = train, val, val_fraction
        if collate is not None:
            self.collate = collate()

    def setup(self, stage: str) -> None:
        self.train_set, self.val_set = self._sets

    @cached_property
    def _sets(self) -> tuple[Dataset[Any], Dataset[Any]]:
        train = _map_style("data.train", self._make_train())
        if self._make_val is not None:
            return train, _map_style("data.val", self._make_val())
        order = torch.randperm(num_samples(train), generator=torch.Generator().manual_seed(self.seed)).tolist()
        num_val = round(len(order) * self._val_fraction)
        return Subset(train, order[num_val:]), Subset(train, order[:num_val])

    def possible_sizes(self) -> dict[int, Collection[int]]:
        return {0: range(1, self.batch_size + 1)}


def _map_style(setting: str, dataset: Any) -> Dataset[Any]:
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        raise ConfigError(
            f"{setting} = {name}: an IterableDataset has no samples by number, which order and ranks need; give a "
            "map-style Dataset, or use data=module"
        )
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise ConfigError(f"{setting} = {name}: has no __len__ or no __getitem__; give a map-style Dataset")
    mapped: Dataset[Any] = dataset
    return mapped
