"""The DataModule that all data sets are: which process sees which samples, and in which order."""

from collections.abc import Callable, Collection
from typing import Any

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler

from trainkit.config.errors import refuse
from trainkit.data.batches import collate, num_samples
from trainkit.data.loader import EpochLoader, EpochPlan
from trainkit.inputs import Batch

TOKENS = ("tokens", "tokens_and_mask")  # the kinds of inputs that are made of tokens
LENGTHS = ("channels", "image_size", "num_classes", "vocab_size", "seq_len")  # the sizes that are at least 1


class DataModule(lightning.LightningDataModule):
    """Batches (inputs, targets) in an order that depends on the seed and the epoch alone.

    Images are float32 [B, channels, image_size, image_size], or bytes that `prepare` turns into them; targets int64
    [B]. Tokens are int64 [B, T], T <= seq_len; targets int64 [B], or [B, T] if every next token is predicted. With
    `inputs=tokens_and_mask` they are `input_ids` of a dict; where sequences are padded it has an `attention_mask`
    int64 [B, T] too, 0 for padding.

    Training batches are full. Batch k of all processes together holds the same samples however the same global batch
    is split over processes. Validation has every sample exactly once over all processes, in order; its last batch may
    be short. A new iterator draws nothing from the global random state. Raises ConfigError for a size below 1, and if
    there are fewer samples than one global batch, or fewer to validate on than processes.

    A subclass sets `train_set` and `val_set` in `setup` (stage "fit", or "predict" if the network is only called).
    Both are map-style; a data set with `__getitems__` returns whole batches. Costly work that is done once belongs in
    `prepare_data`. `sizes` are the shapes that the data set declares to the network. The trainer knows ranks and
    device and must have `use_distributed_sampler=False`; without a trainer there is one process on `device_alone`.
    """

    train_set: Dataset[Any]
    val_set: Dataset[Any]
    prepare: nn.Module = nn.Identity()  # inputs of a batch -> inputs of the network, on the device
    collate: Callable[[Any], Batch] = staticmethod(collate)  # of what a data set returns
    device_alone = torch.device("cpu")

    def __init__(self, *, batch_size: int, num_workers: int = 0, seed: int = 0, inputs: str | None, **sizes: int):
        super().__init__()
        self.batch_size = batch_size  # of each process
        self.num_workers = num_workers
        self.seed = seed
        self.inputs = inputs  # images | tokens | tokens_and_mask; None: of the user's own
        self.sizes = sizes  # channels, image_size, num_classes, vocab_size, seq_len, ...: those that apply
        complaints = []
        for name in LENGTHS:
            if sizes.get(name, 1) < 1:
                complaints.append(f"data.{name} = {sizes[name]}: expected 1 or more")
        refuse(complaints)

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
        _check_num_samples(self)
        # Also for one process, so that its order is the one that several share. Lightning calls set_epoch.
        sampler: DistributedSampler[Any] = DistributedSampler(
            self.train_set, self.world_size, self.rank, shuffle=True, seed=self.seed, drop_last=True
        )
        return self._loader(self.train_set, sampler, drop_last=True)

    def val_dataloader(self) -> Any:
        _check_num_samples(self)
        # Not a DistributedSampler: it would repeat samples until all ranks have equally many.
        samples_of_rank = range(self.rank, num_samples(self.val_set), self.world_size)
        return self._loader(self.val_set, samples_of_rank, drop_last=False)

    def forward_dataloader(self) -> Any:
        """The batches to call a network with that is not trained: those of validation."""
        return self.val_dataloader()

    def sample(self) -> Batch:
        """The first two samples of the training set (or its only one), on the CPU and without a trainer."""
        self.prepare_data()
        self.setup("fit")
        indices = list(range(min(2, num_samples(self.train_set))))
        loader = DataLoader(
            self.train_set, batch_sampler=[indices], collate_fn=self.collate, generator=torch.Generator()
        )
        return next(iter(loader))

    def possible_sizes(self) -> dict[int, Collection[int]]:
        """Every size that inputs and targets may have, by the number of the dimension."""
        batch_sizes = range(1, self.batch_size + 1)  # validation's last batch may be short
        if self.inputs in TOKENS:
            return {0: batch_sizes, 1: range(1, self.sizes["seq_len"] + 1)}
        side = self.sizes["image_size"]
        return {0: batch_sizes, 1: [self.sizes["channels"]], 2: [side], 3: [side]}

    def unused_sizes(self, limit: int | float) -> list[str]:
        """A complaint for each setting with sizes that no batch has if an epoch is cut to `limit` batches.

        An int is a number of batches, a float a fraction of them.
        """
        return []

    def _loader(self, dataset: Dataset[Any], sampler: Sampler[int] | range, drop_last: bool) -> EpochLoader:
        plan = EpochPlan(sampler, self.batch_size, drop_last, seed=f"{self.seed} {self.rank}")
        pin_memory = self.device.type == "cuda"
        return EpochLoader(dataset, plan, self.collate, self.num_workers, pin_memory)


def contradictions(data: DataModule, **actual: Any) -> list[str]:
    """A complaint for each of the given settings that was declared otherwise than the data set has it."""
    declared = {"inputs": data.inputs, **data.sizes}
    complaints = []
    for name, value in actual.items():
        if declared[name] != value:
            complaints.append(f"data.{name} = {declared[name]}: {_name(data)} has {value}; say data.{name}={value}")
    return complaints


def token_complaints(data: DataModule) -> list[str]:
    """A complaint if the inputs of these texts were declared as anything but tokens."""
    if data.inputs in TOKENS:
        return []
    return [f"data.inputs = {data.inputs}: {_name(data)} has {' or '.join(TOKENS)}; leave it to the model"]


def val_fraction_complaints(val_fraction: object, example: float = 0.1) -> list[str]:
    """A complaint if this is not a fraction that leaves samples to train and to validate on."""
    if isinstance(val_fraction, int | float) and 0 < val_fraction < 1:
        return []
    return [f"data.val_fraction = {val_fraction}: expected a fraction between 0 and 1; try {example}"]


def _check_num_samples(data: DataModule) -> None:
    """Raise ConfigError if there are too few samples for the processes."""
    complaints = _train_complaints(_name(data), num_samples(data.train_set), data.batch_size, data.world_size)
    complaints += _validation_complaints(_name(data), num_samples(data.val_set), data.world_size)
    refuse(complaints)


def _name(data: DataModule) -> str:
    return type(data).__name__.lower()


def _train_complaints(data_name: str, num_samples: int, batch_size: int, world_size: int) -> list[str]:
    """A complaint if there are fewer samples than the processes need for a batch each."""
    if num_samples >= batch_size * world_size:
        return []
    if num_samples >= world_size:
        way_out = f"try data.batch_size={num_samples // world_size}"
    else:
        way_out = "give more data or fewer processes"
    return [
        f"data.batch_size = {batch_size}: {data_name} has {num_samples} training samples, less than one "
        f"batch for {world_size} process(es); {way_out}"
    ]


def _validation_complaints(data_name: str, num_samples: int, world_size: int) -> list[str]:
    """A complaint if a process would have no sample. Validation begins and ends with collectives of all of them."""
    if num_samples >= world_size:
        return []
    return [
        f"data = {data_name}: {num_samples} validation samples for {world_size} process(es); give more data or a "
        "larger data.val_fraction, or use fewer processes"
    ]
