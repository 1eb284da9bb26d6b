"""Datasets and a LightningDataModule of a user's own: their split over ranks, order, collating, and refusals."""

from itertools import chain

import pytest
import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.data.conftest import set_up
from trainkit.config.errors import ConfigError
from trainkit.data.any_module import AnyModule
from trainkit.data.datasets import Datasets
from trainkit.training.run import run


class Numbers(Dataset):
    """The numbers from a first one on, each by keyword, and its parity."""

    def __init__(self, first=0, size=24):
        self.first, self.size = first, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        number = self.first + index
        return {"number": torch.tensor(number)}, number % 2


class NoSamples:
    def __len__(self):
        return 24


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Numbers())


class Own(LightningDataModule):
    """Batches in an order and on loaders of its own."""

    def __init__(self, loaders=1):
        super().__init__()
        self.loaders = loaders

    def train_dataloader(self):
        numbers = torch.arange(24)
        return DataLoader(TensorDataset(numbers, numbers % 2), batch_size=4)

    def val_dataloader(self):
        loaders = [self.train_dataloader() for _ in range(self.loaders)]
        return loaders[0] if self.loaders == 1 else loaders


class OwnTransfer(Own):
    def on_after_batch_transfer(self, batch, dataloader_idx):
        inputs, targets = batch
        return -inputs, targets


def datasets(rank=0, world_size=2, **settings):
    settings = {"train": Numbers, "val": lambda: Numbers(100, 7), "batch_size": 4, "seed": 3, "inputs": None} | settings
    return set_up(Datasets(**settings), rank, world_size)


def numbers(loader):
    return [inputs["number"].tolist() for inputs, _ in loader]


def sorted_numbers(*loaders):
    return sorted(chain.from_iterable(chain.from_iterable(numbers(loader) for loader in loaders)))


def test_ranks_share_the_samples_in_an_order_of_the_seed_and_none_comes_twice():
    ranks = [datasets(rank) for rank in range(2)]
    trained = [numbers(data.train_dataloader()) for data in ranks]
    assert sorted_numbers(*(data.train_dataloader() for data in ranks)) == list(range(24))
    assert [len(batch) for batch in trained[0]] == [4, 4, 4]
    assert sorted_numbers(*(data.val_dataloader() for data in ranks)) == list(range(100, 107))
    alone = numbers(datasets(world_size=1, batch_size=8).train_dataloader())
    assert [set(batch) for batch in alone] == [{*a, *b} for a, b in zip(*trained, strict=True)]
    assert numbers(datasets(num_workers=2).train_dataloader()) == trained[0]
    assert numbers(datasets(seed=4).train_dataloader()) != trained[0]


def test_without_a_validation_set_the_seed_splits_the_training_samples():
    whole = datasets(world_size=1, val=None, val_fraction=0.25, batch_size=3)
    assert [len(sorted_numbers(loader)) for loader in (whole.train_dataloader(), whole.val_dataloader())] == [18, 6]
    assert sorted_numbers(whole.train_dataloader(), whole.val_dataloader()) == list(range(24))


def test_a_collate_function_makes_the_batches():
    def joined(samples):
        return torch.stack([inputs["number"] for inputs, _ in samples]), torch.tensor([one for _, one in samples])

    (inputs, targets), *_ = datasets(collate=lambda: joined).train_dataloader()
    assert inputs.shape == targets.shape == (4,)
    assert torch.equal(targets, inputs % 2)


@pytest.mark.parametrize(
    ("train", "complaint"),
    [
        (Stream, r"data\.train = Stream: an IterableDataset has no samples by number, .*; give .* or use data=module"),
        (NoSamples, r"data\.train = NoSamples: has no __len__ or no __getitem__; give a map-style Dataset"),
    ],
)
def test_what_has_no_samples_by_number_is_one_line(train, complaint):
    with pytest.raises(ConfigError, match=f"^{complaint}$"):
        datasets(train=train)


def test_a_sample_that_fails_is_in_the_row_with_the_line_of_the_data_set(compose):
    words = ("model=own", "model._target_=tests.networks.Plain", "data=dataset", "compile.mode=eager")
    target = "data.train._target_=tests.networks.FailingDataset"
    row = run(
        compose(*words, target, "+model.channels=1", "+model.image_size=8", "+model.num_classes=10", "+model.width=1")
    )
    assert row.status == "failed"
    assert row.error.startswith("KeyError: 3 (at tests/networks.py:")


def test_a_module_keeps_its_loaders_and_what_it_does_to_batches_needs_a_trainer():
    data = set_up(AnyModule(module=Own), 0, 1)
    first, _ = next(iter(data.train_dataloader()))
    assert first.tolist() == [0, 1, 2, 3]
    inputs, targets = data.sample()
    assert (inputs.tolist(), targets.tolist()) == ([0, 1], [0, 1])
    inputs, _ = AnyModule(module=OwnTransfer).sample()
    assert inputs.tolist() == [0, -1]
    with pytest.raises(ConfigError, match=r"^data\.module = OwnTransfer: its on_after_batch_transfer is called by a "):
        AnyModule(module=OwnTransfer).train_dataloader()


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        (None, r"data\.module\._target_ = null: names no LightningDataModule; set .*"),
        (Numbers, r"data\.module = Numbers: is no LightningDataModule; give one"),
        (lambda: Own(loaders=2), r"data\.module = Own: val_dataloader returns a list; give one loader"),
        (LightningDataModule, r"data\.module = LightningDataModule: has no val_dataloader; add it, or set .*"),
    ],
)
def test_a_module_that_cannot_be_validated_on_is_one_line(module, complaint):
    with pytest.raises(ConfigError, match=f"^{complaint}$"):
        AnyModule(module=module).val_dataloader()
