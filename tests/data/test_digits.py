"""The handwritten digits."""

import numpy as np
import pytest
import torch

from tests.data.conftest import set_up
from trainkit.config.errors import ConfigError
from trainkit.data.digits import Digits


def test_digits_are_images_in_0_to_1_and_the_seed_splits_them():
    datamodule = set_up(Digits(batch_size=64, seed=3))
    inputs, targets = next(iter(datamodule.train_dataloader()))
    assert (inputs.shape, inputs.dtype) == ((64, 1, 8, 8), torch.float32)
    assert (targets.shape, targets.dtype) == ((64,), torch.int64)
    assert inputs.min() == 0
    assert inputs.max() == 1
    assert set(targets.tolist()) == set(range(10))
    everything = lambda digits: np.concatenate([digits.train_set.inputs, digits.val_set.inputs])  # noqa: E731
    assert (len(datamodule.train_set), len(datamodule.val_set)) == (1438, 359)
    same, other = set_up(Digits(batch_size=64, seed=3)), set_up(Digits(batch_size=64, seed=4))
    assert np.array_equal(everything(same), everything(datamodule))
    assert not np.array_equal(everything(other), everything(datamodule))
    assert np.array_equal(*(np.sort(everything(digits).sum((1, 2, 3))) for digits in (other, datamodule)))


def test_digits_name_every_setting_that_contradicts_them():
    with pytest.raises(ConfigError) as error:
        Digits(batch_size=4, channels=3, image_size=32, num_classes=5, inputs="tokens", val_fraction=1.5)
    assert error.value.complaints == (
        "data.inputs = tokens: digits has images; say data.inputs=images",
        "data.channels = 3: digits has 1; say data.channels=1",
        "data.image_size = 32: digits has 8; say data.image_size=8",
        "data.num_classes = 5: digits has 10; say data.num_classes=10",
        "data.val_fraction = 1.5: expected a fraction between 0 and 1; try 0.2",
    )
