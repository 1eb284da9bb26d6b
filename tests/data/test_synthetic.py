"""Synthetic batches: their shapes, their order, and settings that contradict each other."""

import itertools

import pytest
import torch

from tests.data.conftest import random_state, set_up
from trainkit.config.errors import ConfigError
from trainkit.data.synthetic import Synthetic


def synthetic(**settings):
    return Synthetic(
        **{"batch_size": 4, "inputs": "images", "image_size": 6, "seq_len": 5, "vocab_size": 9, **settings}
    )


@pytest.mark.parametrize(
    ("settings", "shape", "num_classes", "targets_shape"),
    [
        ({}, (3, 6, 6), 10, ()),
        ({"inputs": "tokens", "num_classes": 2}, (5,), 2, ()),
        ({"inputs": "tokens", "num_classes": 9, "next_token": True}, (5,), 9, (5,)),
    ],
)
def test_synthetic_batches_have_the_declared_shapes_and_disturb_no_random_state(
    settings, shape, num_classes, targets_shape
):
    before = random_state()
    datamodule = set_up(synthetic(**settings))
    batches = [next(iter(loader)) for loader in (datamodule.train_dataloader(), datamodule.val_dataloader())]
    sample = synthetic(**settings).sample()  # without a trainer
    assert random_state() == before
    for size, (inputs, targets) in ((4, batches[0]), (4, batches[1]), (2, sample)):
        assert inputs.shape == (size, *shape)
        assert targets.shape == (size, *targets_shape)
        assert inputs.is_contiguous()
        assert targets.is_contiguous()
        assert targets.dtype == torch.int64
        assert targets.min() >= 0
        assert targets.max() < num_classes
        assert inputs.dtype == (torch.float32 if datamodule.inputs == "images" else torch.int64)
        if targets_shape:
            assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_padded_synthetic_tokens_have_a_mask_where_it_is_taken():
    padded = {"inputs": "tokens_and_mask", "padding": "buckets", "buckets": [4], "num_classes": 2}
    datamodule = set_up(synthetic(**padded, seq_lens=[2, 5]))
    (short, _), (long, _) = itertools.islice(datamodule.train_dataloader(), 2)
    assert short["input_ids"].shape == (4, 4)
    assert short["attention_mask"].tolist() == [[1, 1, 0, 0]] * 4
    assert not short["input_ids"][:, 2:].any()
    assert long["attention_mask"].tolist() == [[1] * 5] * 4
    inputs, _ = set_up(synthetic(inputs="tokens_and_mask", num_classes=2)).sample()
    assert list(inputs) == ["input_ids"]  # nothing is padded


def test_synthetic_goes_round_its_distinct_batches_and_makes_nothing_new():
    datamodule = set_up(synthetic(num_batches=7, num_distinct=3, num_val_batches=2))
    loader = datamodule.train_dataloader()
    batches = list(loader)
    assert len(loader) == len(batches) == 7
    assert len(list(loader)) == 7
    assert [id(inputs) for inputs, _ in batches[3:6]] == [id(inputs) for inputs, _ in batches[:3]]
    assert len({id(inputs) for inputs, _ in batches}) == 3
    assert not torch.equal(batches[0][0], batches[1][0])
    assert len(list(datamodule.val_dataloader())) == len(datamodule.val_dataloader()) == 2


def test_synthetic_batches_are_a_function_of_the_seed_and_the_rank():
    first = lambda seed, rank: next(iter(set_up(synthetic(seed=seed), rank, 2).train_dataloader()))[0]  # noqa: E731
    assert torch.equal(first(0, 0), first(0, 0))
    assert not torch.equal(first(0, 0), first(0, 1))
    assert not torch.equal(first(0, 0), first(5, 0))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"inputs": "sound"},
            "data.inputs = sound: expected one of images, tokens, tokens_and_mask; leave it to the model",
        ),
        ({"num_distinct": 0}, "data.num_distinct = 0: expected 1 or more; try data.num_distinct=4"),
        ({"num_batches": 0}, "data.num_batches = 0: expected 1 or more; try data.num_batches=4"),
        ({"num_val_batches": -1}, "data.num_val_batches = -1: expected 0 or more; try 5"),
        ({"inputs": "tokens", "seq_len": -1}, "data.seq_len = -1: expected 1 or more"),
        ({"next_token": True}, "data.next_token = True: images have no next token; choose a model that takes tokens"),
        (
            {"inputs": "tokens", "next_token": True},
            "data.num_classes = 10: the next token is one of data.vocab_size = 9; say data.num_classes=9",
        ),
    ],
)
def test_synthetic_settings_that_cannot_be_are_one_line(settings, complaint):
    with pytest.raises(ConfigError) as error:
        synthetic(**settings)
    assert error.value.complaints == (complaint,)
