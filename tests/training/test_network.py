"""The plain network of a checkpoint."""

import pytest
import torch

import trainkit
from tests.conftest import parameters, same
from trainkit.config.errors import ConfigError
from trainkit.training.run import run

QUICK = ("compile.backend=aot_eager", "trainer.max_epochs=1", "trainer.limit_train_batches=3")


def test_a_checkpoint_gives_the_plain_network_that_was_trained(compose, tmp_path):
    row = run(compose(*QUICK, "model.width=8"))
    path = tmp_path / "run" / "checkpoints" / "best.ckpt"
    net = trainkit.load(path)
    prefixed = {f"objective.net.{name}": tensor for name, tensor in net.state_dict().items()}
    assert same(prefixed, parameters(tmp_path / "run", "best"))
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert not net.training
    config = torch.load(path, weights_only=True)["config"]
    assert (config["model"]["width"], config["compile"]["mode"]) == (8, row.compile_mode)


def test_what_is_no_checkpoint_with_a_config_is_one_line(compose, tmp_path):
    with pytest.raises(ConfigError, match="is cut off, or no checkpoint"):
        trainkit.load(tmp_path / "none.ckpt")
    torch.save({"state_dict": {}, "global_step": 1, "epoch": 0}, tmp_path / "old.ckpt")
    with pytest.raises(ConfigError, match="has no config"):
        trainkit.load(tmp_path / "old.ckpt")


def test_the_package_has_no_other_names():
    with pytest.raises(AttributeError, match="'trainkit' has no attribute 'lode'"):
        _ = trainkit.lode
