"""Autocast and the kernels of attention."""

import time

import pytest
import torch

from tests.conftest import parameters, same
from tests.networks import network
from trainkit.config.errors import ConfigError
from trainkit.training.run import run

QUICK = ("trainer.max_epochs=2", "trainer.limit_train_batches=6")


def test_bf16_trains_and_the_row_says_so(compose):
    row = run(compose("amp=bf16", "compile.backend=aot_eager", "trainer.max_epochs=3"))
    assert (row.status, row.precision) == ("ok", "bf16-mixed")
    assert row.val_accuracy > 0.9


@pytest.mark.parametrize("mode", ["compile.mode=eager", "compile.backend=aot_eager"])
def test_bf16_true_trains_with_parameters_in_it_and_goes_on(mode, compose, tmp_path):
    asked = ("amp=bf16_true", mode, "trainer.limit_train_batches=12")
    whole = run(compose(*asked, "trainer.max_epochs=3", run_dir=tmp_path / "whole"))
    assert (whole.status, whole.precision) == ("ok", "bf16-true")
    assert whole.val_accuracy > 0.5
    run(compose(*asked, "trainer.max_epochs=2", run_dir=tmp_path / "parts"))
    row = run(compose(*asked, "trainer.max_epochs=3", "ckpt_path=last", run_dir=tmp_path / "parts"))
    assert row.train_loss == whole.train_loss
    trained = parameters(tmp_path / "parts")
    assert {tensor.dtype for tensor in trained.values() if tensor.is_floating_point()} == {torch.bfloat16}
    assert same(trained, parameters(tmp_path / "whole"))


@pytest.mark.parametrize("setting", ["check=true", "ddp.strategy=fsdp2", "job.kind=forward"])
def test_what_bf16_true_is_not_built_for_is_one_line(setting, compose):
    with pytest.raises(ConfigError, match=r"amp\.precision = bf16-true"):
        compose("amp=bf16_true", setting)


@pytest.mark.parametrize(
    ("asked_for", "found"),
    [
        ("auto", "flash True, math True, cudnn True"),
        ("math", "flash False, math True, cudnn False"),
        ("flash", "flash True, math False, cudnn False"),
    ],
)
def test_attention_runs_on_the_kernel_asked_for_alone(compose, capsys, asked_for, found):
    row = run(compose(network("TellsAttention"), f"trainer.attention={asked_for}", "compile.mode=eager", *QUICK))
    assert row.error.startswith(f"ArithmeticError: {found} (at ")


def test_compiled_code_is_that_of_the_attention_asked_for(compose):
    tag = str(time.time())  # nothing is found of earlier runs
    words = (network("Attends"), "trainer.limit_train_batches=2", "trainer.limit_val_batches=0", "trainer.max_epochs=1")
    with torch.compiler.config.patch(cache_key_tag=tag):
        found = [run(compose(*words, f"trainer.attention={word}")).cache_found for word in ("auto", "math", "math")]
        assert torch.compiler.config.cache_key_tag == tag
    assert found == ["cold", "cold", "warm"]


def test_a_gpus_kernel_is_refused_on_a_cpu(compose):
    with pytest.raises(ConfigError, match=r"trainer.attention = cudnn: needs a GPU; on a CPU use auto, flash or math"):
        run(compose("trainer.attention=cudnn", "trainer.accelerator=cpu"))
