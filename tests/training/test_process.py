"""Settings of the process that a run changes are afterwards as before."""

import logging
import os
import re
import warnings
from typing import Any

import pytest
import torch
import torch._dynamo

from tests.networks import network
from trainkit.training.process import LOG_LEVELS, run_settings
from trainkit.training.run import run

# Of pytest, of libraries as they are imported, and of torch to itself
OTHERS = re.compile("PYTEST_|KMP_|_TORCHINDUCTOR_")
SHORT = ("trainer.max_epochs=1", "trainer.limit_train_batches=2", "trainer.limit_val_batches=1")


def settings() -> dict[str, Any]:
    return {
        "matmul precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
        "attention": (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "dynamo": (torch._dynamo.config.optimize_ddp, torch._dynamo.config.recompile_limit),
        "warnings": list(warnings.filters),
        "log levels": {name: logging.getLogger(name).level for name in LOG_LEVELS},
        "variables": {name: os.environ[name] for name in os.environ if not OTHERS.match(name)},
    }


COMPILED = ("compile.backend=aot_eager", "compile.max_recompiles=20", "ddp.optimize_ddp=false")


@pytest.mark.parametrize(
    "own_settings",
    [("compile.mode=eager",), COMPILED, ("compile.mode=eager", "ddp.strategy=ddp")],
    ids=["eager", "compiled", "ddp"],
)
def test_a_run_restores_the_settings_it_changes(own_settings, compose, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # else Lightning's DDP leaves the threads as they are
    before = settings()
    words = ("amp.matmul_precision=medium", "trainer.attention=math", "check=true", *own_settings, *SHORT)
    assert run(compose(*words)).status == "ok"
    assert settings() == before


def test_a_failed_run_restores_them_too(compose, capsys):
    before = settings()
    row = run(compose(network("Raises"), "amp.matmul_precision=medium", "compile.mode=eager", *SHORT))
    assert row.status == "failed"
    assert settings() == before


def test_settings_that_lightning_changes_are_restored(compose):
    before = settings()
    with run_settings(compose("logger=wandb")):
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = True
        os.environ["PL_GLOBAL_SEED"] = "7"
        assert os.environ["WANDB_SILENT"] == "true"
        assert settings() != before
    assert settings() == before


@pytest.mark.parametrize("logger", ["wandb", "wandb_online"])
def test_wandb_finds_a_home_where_none_is_set(logger, compose, monkeypatch):
    monkeypatch.delenv("HOME")
    with run_settings(compose(f"logger={logger}")):
        assert os.path.isdir(os.environ["HOME"])
    assert "HOME" not in os.environ
