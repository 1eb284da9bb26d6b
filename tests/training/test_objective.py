"""The transformations before compilation: channels_last and activation checkpointing."""

import pytest
import torch
from torch import nn

from tests.conftest import parameters
from tests.networks import network
from trainkit.config.errors import ConfigError
from trainkit.results.files import read_row
from trainkit.training.objective import build_objective
from trainkit.training.run import run

SHORT = ("compile.mode=eager", "trainer.limit_train_batches=8", "model.width=8", "optimizer.lr=1e-3")


def test_channels_last_reaches_the_convolutions_and_the_graph(compose, tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 4 * 4, 5))
    objective = build_objective(compose("trainer.channels_last=true"), net)
    seen = []
    objective.net[0].register_forward_hook(lambda module, inputs, output: seen.extend([*inputs, output]))
    objective(torch.randn(2, 3, 6, 6), torch.tensor([0, 1]))
    assert all(images.is_contiguous(memory_format=torch.channels_last) for images in (*seen, objective.net[0].weight))
    assert not any(images.is_contiguous() for images in seen)


def test_channels_last_compiles_to_the_same_answer(compose):
    asked = ("compile.backend=aot_eager", *SHORT[1:], "trainer.max_epochs=1", "check=true")
    row = run(compose(*asked, "trainer.channels_last=true", "trainer.gradient_clip_val=1.0"))
    assert (row.status, row.effective_mode, row.num_graph_breaks) == ("ok", "default", 0)
    assert row.check_passed, row.check_reason


def test_channels_last_needs_weights_of_convolutions(compose):
    with pytest.raises(ConfigError, match=r"^trainer\.channels_last = True: Plain has no 4-d weights"):
        run(compose(network("Plain"), "compile.mode=eager", "trainer.channels_last=true"))


@pytest.mark.parametrize("setting", ["channels_last", "activation_checkpointing"])
def test_what_a_network_has_nothing_for_is_refused_before_the_run(setting, compose, tmp_path):
    with pytest.raises(ConfigError, match=f"trainer.{setting} = True: Plain has no "):
        run(compose(network("Plain"), f"trainer.{setting}=true", "trainer.accelerator=cpu"))
    assert read_row(tmp_path / "run") is None


def test_accumulation_clipping_cosine_and_checkpointed_blocks_train(compose, tmp_path):
    asked = (
        network("Blocks"), "compile.backend=aot_eager", "trainer.max_epochs=2", "trainer.accumulate_grad_batches=2",
        "trainer.gradient_clip_val=1.0", "trainer.schedule=cosine", "trainer.warmup_steps=2",
    )  # fmt: skip
    plain = run(compose(*asked, run_dir=tmp_path / "plain"))
    row = run(compose(*asked, "trainer.activation_checkpointing=true", run_dir=tmp_path / "checkpointed"))
    assert row.status == "ok"
    assert row.num_graph_breaks == 0
    assert parameters(tmp_path / "checkpointed").keys() == parameters(tmp_path / "plain").keys()
    assert row.train_loss == pytest.approx(plain.train_loss, rel=0.05)


def test_blocks_are_needed_to_checkpoint_them(compose):
    with pytest.raises(ConfigError, match=r"trainer\.activation_checkpointing = True: Plain has no blocks"):
        run(compose(network("Plain"), "compile.mode=eager", "trainer.activation_checkpointing=true"))
