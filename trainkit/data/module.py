"""What every data set here guarantees: which sample is seen by which process, when, and exactly how often."""

from collections.abc import Collection, Sequence
from typing import Any

import lightning
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, default_collate
from torch.utils.data.distributed import DistributedSampler

from trainkit.config.errors import ConfigError

Batch = tuple[Tensor, Tensor]


class DataModule(lightning.LightningDataModule):
    """Batches (inputs, targets) whose order is a function of the seed and the epoch alone.

    images: float32 [B, channels, image_size, image_size], targets int64 [B]; or bytes that `prepare` makes them of.
    tokens: int64 [B, T], T <= seq_len, targets int64 [B], or [B, T] where every next token is predicted.
    Training: full batches only; batch k of all processes together holds the same samples for any split of the same
    global batch over processes. Validation: every sample exactly once over all processes, in order; the last batch may
    be short. Making an iterator draws nothing from the global random state. Ranks and device are the trainer's, which
    needs `use_distributed_sampler=False`; without a trainer it is one process on `device_alone`. ConfigError if there
    are fewer samples than one global batch, or than processes to validate on.

    A subclass sets `train_set` and `val_set` (map-style; a data set with `__getitems__` returns whole batches) in
    `setup` (stage "fit", or "predict" where the network is only called); costly one-time work goes into `prepare_data`.
    `sizes` are the shapes it declares to the network.
    """

    train_set: Dataset
    val_set: Dataset
    prepare: nn.Module = nn.Identity()  # inputs of a batch -> inputs of the network, on the device
    device_alone = torch.device("cpu")

    def __init__(self, *, batch_size: int, num_workers: int = 0, seed: int = 0, inputs: str, **sizes: int):
        super().__init__()
        self.batch_size = batch_size  # of each process
        self.num_workers = num_workers
        self.seed = seed
        self.inputs = inputs  # images | tokens
        self.sizes = sizes  # channels, image_size, num_classes, vocab_size, seq_len, ...: those that apply

    @property
    def world_size(self) -> int:
        return self.trainer.world_size if self.trainer else 1

    @property
    def rank(self) -> int:
        return self.trainer.global_rank if self.trainer else 0

    @property
    def device(self) -> torch.device:
        return self.trainer.strategy.root_device if self.trainer else self.device_alone

    def train_dataloader(self) -> Any:
        self._check_num_samples()
        # Also for one process: its order is then the one that several share. Lightning calls set_epoch.
        sampler: DistributedSampler = DistributedSampler(
            self.train_set, self.world_size, self.rank, shuffle=True, seed=self.seed, drop_last=True
        )
        return self._loader(self.train_set, sampler=sampler, batch_size=self.batch_size, drop_last=True)

    def val_dataloader(self) -> Any:
        self._check_num_samples()
        # Not a DistributedSampler: it would repeat samples until all ranks have equally many.
        mine = Subset(self.val_set, range(self.rank, _length(self.val_set), self.world_size))
        return self._loader(mine, batch_size=self.batch_size)

    def forward_dataloader(self) -> Any:
        """The batches that a network is called with where it is not trained: those of validation."""
        return self.val_dataloader()

    def sample(self) -> Batch:
        """The first two samples of the training set (one, if it has no more), on the CPU and without a trainer."""
        self.prepare_data()
        self.setup("fit")
        first = list(range(min(2, _length(self.train_set))))
        loader = DataLoader(self.train_set, batch_sampler=[first], collate_fn=_collate, generator=torch.Generator())
        return next(iter(loader))

    def coming_sizes(self) -> dict[int, Collection[int]]:
        """Every size that inputs and targets may have, by the number of the dimension."""
        whole = range(1, self.batch_size + 1)  # validation's last batch may be short
        if self.inputs == "tokens":
            return {0: whole, 1: range(1, self.sizes["seq_len"] + 1)}
        side = self.sizes["image_size"]
        return {0: whole, 1: [self.sizes["channels"]], 2: [side], 3: [side]}

    def never_coming(self, limit: int | float) -> list[str]:
        """One complaint for each setting of whose sizes some never come, where of the batches of an epoch only so many
        (int) or such a part (float) are taken."""
        return []

    def contradictions(self, **actual: Any) -> list[str]:
        """One complaint for each of the given settings that was declared otherwise."""
        declared = {"inputs": self.inputs, **self.sizes}
        return [
            f"data.{name} = {declared[name]}: {self._name} has {value}; say data.{name}={value}"
            for name, value in actual.items()
            if declared[name] != value
        ]

    @property
    def _name(self) -> str:
        return type(self).__name__.lower()

    def _check_num_samples(self) -> None:
        train, val, world = _length(self.train_set), _length(self.val_set), self.world_size
        complaints = []
        if train < self.batch_size * world:
            fits = f"try data.batch_size={train // world}" if train >= world else "give more data or fewer processes"
            complaints.append(
                f"data.batch_size = {self.batch_size}: {self._name} has {train} training samples, less than one "
                f"batch for {world} process(es); {fits}"
            )
        if val < world:  # validation begins and ends with collectives: no rank may be without a batch
            complaints.append(
                f"data = {self._name}: {val} validation samples for {world} process(es); give more data or a "
                "larger data.val_fraction, or use fewer processes"
            )
        if complaints:
            raise ConfigError(*complaints)

    def _loader(self, dataset: Dataset, **order: Any) -> DataLoader:
        return DataLoader(
            dataset,
            **order,
            collate_fn=_collate,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=self.device.type == "cuda",
            # Its own: else each new iterator draws the workers' seed from the global state, and a resumed run,
            # which makes other iterators, would go on with other random numbers.
            generator=torch.Generator().manual_seed(self.seed),
        )


def is_part(fraction: object) -> bool:
    """Whether so much of a whole is something, and leaves something."""
    return isinstance(fraction, int | float) and 0 < fraction < 1


class ArrayDataset(Dataset):
    """Samples in two arrays (in memory or memory-mapped), fetched a whole batch at a time; integers leave as
    int64, bytes as they are."""

    def __init__(self, inputs: np.ndarray, targets: np.ndarray):
        self.arrays = (inputs, targets)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        inputs, targets = (_tensor(array[list(indices)]) for array in self.arrays)
        return inputs, targets


def _tensor(array: np.ndarray) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor if tensor.is_floating_point() or tensor.dtype == torch.uint8 else tensor.long()


def _collate(fetched: Any) -> Batch:
    """A data set with `__getitems__` hands over its batch whole, a tuple; of any other comes a list of samples."""
    return fetched if isinstance(fetched, tuple) else tuple(default_collate(fetched))


def _length(dataset: Dataset) -> int:
    return len(dataset)  # type: ignore[arg-type]  # torch's Dataset declares no __len__
