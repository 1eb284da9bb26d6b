"""A batch, and how samples become one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from trainkit.config.errors import ConfigError
from trainkit.inputs import Batch


class ArrayDataset(Dataset[Any]):
    """Samples in two arrays, in memory or memory-mapped, fetched a whole batch at a time.

    Integers are returned as int64, bytes and floats as they are. Networks take the inputs by `keyword`, if it is set.
    """

    def __init__(self, inputs: np.ndarray, targets: np.ndarray, keyword: str | None = None):
        self.inputs = inputs
        self.targets = targets
        self.keyword = keyword

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        rows = list(indices)
        inputs, targets = _as_tensor(self.inputs[rows]), _as_tensor(self.targets[rows])
        if self.keyword is None:
            return inputs, targets
        return {self.keyword: inputs}, targets


def _as_tensor(array: np.ndarray) -> Tensor:
    tensor = torch.from_numpy(array)
    if tensor.is_floating_point() or tensor.dtype == torch.uint8:
        return tensor
    return tensor.long()


def collate(fetched: Any) -> Batch:
    """The batch of a tuple, which a data set with `__getitems__` returns whole, or of a list of samples."""
    if isinstance(fetched, tuple):
        return fetched
    batch = default_collate(fetched)
    check_pair(batch, "data")
    inputs, targets = batch
    return inputs, targets


def check_pair(batch: Any, setting: str) -> None:
    """Raise ConfigError about the setting if a batch is not (inputs, targets)."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return
    kind = f"a {type(batch).__name__}"
    if isinstance(batch, Mapping):
        kind = f"a dict of {', '.join(map(str, batch))}"
    elif isinstance(batch, tuple | list):
        kind = f"{len(batch)} parts"
    raise ConfigError(f"{setting}: a batch is {kind}; expected (inputs, targets), inputs a tensor, a tuple or a dict")


def num_samples(dataset: Dataset[Any]) -> int:
    return len(dataset)  # type: ignore[arg-type]  # torch's Dataset declares no __len__
