"""Every data set: which sample comes when and how often, and that no random state is disturbed."""

import itertools

import lightning
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from tests.data.conftest import epoch_inputs, random_state, set_up
from trainkit.config.errors import ConfigError
from trainkit.data.batches import ArrayDataset
from trainkit.data.digits import Digits
from trainkit.data.module import DataModule


class Numbers(DataModule):
    """The samples 0, 1, 2, ... so that a batch says which samples it holds."""

    def __init__(self, num_train=23, num_val=7, **settings):
        super().__init__(**{"batch_size": 4, "inputs": "tokens", **settings})
        self.train_set = ArrayDataset(np.arange(num_train), np.arange(num_train))
        self.val_set = ArrayDataset(np.arange(num_val), np.arange(num_val))


def test_the_order_is_a_function_of_the_seed_and_the_epoch():
    first = epoch_inputs(set_up(Numbers(seed=1)))
    torch.manual_seed(99)
    assert epoch_inputs(set_up(Numbers(seed=1))) == first
    assert epoch_inputs(set_up(Numbers(seed=1)), epoch=1) != first
    assert epoch_inputs(set_up(Numbers(seed=2))) != first
    assert epoch_inputs(set_up(Numbers(seed=1, num_workers=1))) == first


@given(
    world_size=st.integers(1, 5), batch_size=st.integers(1, 4), num_train=st.integers(20, 60), epoch=st.integers(0, 5)
)
def test_a_global_batch_holds_the_same_samples_for_any_number_of_processes(world_size, batch_size, num_train, epoch):
    alone = epoch_inputs(set_up(Numbers(num_train, batch_size=batch_size * world_size)), epoch)
    ranks = []
    for rank in range(world_size):
        ranks.append(epoch_inputs(set_up(Numbers(num_train, batch_size=batch_size), rank, world_size), epoch))
    together = [list(itertools.chain(*batches)) for batches in zip(*ranks, strict=True)]
    assert [sorted(batch) for batch in together] == [sorted(batch) for batch in alone]


@given(num_train=st.integers(4, 60), batch_size=st.integers(1, 4))
def test_training_batches_are_full_and_no_sample_comes_twice(num_train, batch_size):
    batches = epoch_inputs(set_up(Numbers(num_train, batch_size=batch_size)))
    assert [len(batch) for batch in batches] == [batch_size] * (num_train // batch_size)
    samples = list(itertools.chain(*batches))
    assert len(set(samples)) == len(samples)


@given(world_size=st.integers(1, 5), num_val=st.integers(5, 40), batch_size=st.integers(1, 4))
def test_validation_has_every_sample_once_over_all_ranks(world_size, num_val, batch_size):
    samples = []
    for rank in range(world_size):
        data = set_up(Numbers(num_val=num_val, batch_size=batch_size), rank, world_size)
        batches = [inputs.tolist() for inputs, _ in data.val_dataloader()]
        samples += itertools.chain(*batches)
        sizes = [len(batch) for batch in batches]
        assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
        assert 1 <= sizes[-1] <= batch_size
    assert sorted(samples) == list(range(num_val))


def test_lightning_moves_the_order_on_from_epoch_to_epoch():
    class Recorder(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight, self.seen = torch.nn.Parameter(torch.zeros(())), []

        def training_step(self, batch):
            self.seen.append(batch[0].tolist())
            return self.weight * 0

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    recorder, quiet = Recorder(), {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", use_distributed_sampler=False, enable_checkpointing=False, **quiet
    )
    trainer.fit(recorder, Numbers(seed=5))
    assert recorder.seen == epoch_inputs(set_up(Numbers(seed=5)), 0) + epoch_inputs(set_up(Numbers(seed=5)), 1)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_iterator_draws_nothing_from_the_global_random_state(num_workers):
    before = random_state()
    datamodule = set_up(Digits(batch_size=64, num_workers=num_workers))
    next(iter(datamodule.train_dataloader()))
    next(iter(datamodule.val_dataloader()))
    datamodule.sample()
    assert random_state() == before


def test_samples_of_an_ordinary_data_set_are_stacked_into_a_tuple():
    datamodule = Numbers()
    datamodule.train_set = datamodule.val_set = TensorDataset(torch.rand(9, 2), torch.arange(9))
    for batch in (next(iter(set_up(datamodule).train_dataloader())), next(iter(datamodule.val_dataloader()))):
        assert isinstance(batch, tuple)
        assert [part.shape for part in batch] == [(4, 2), (4,)]


def test_too_few_samples_for_the_processes_are_one_line():
    with pytest.raises(ConfigError) as error:
        set_up(Numbers(num_train=7, num_val=1, batch_size=4), 0, 2).val_dataloader()
    assert error.value.complaints == (
        "data.batch_size = 4: numbers has 7 training samples, less than one batch for 2 process(es); "
        "try data.batch_size=3",
        "data = numbers: 1 validation samples for 2 process(es); give more data or a larger data.val_fraction, "
        "or use fewer processes",
    )
    with pytest.raises(ConfigError, match="fewer processes"):
        set_up(Numbers(num_train=1, batch_size=4), 0, 2).train_dataloader()
