"""The share of the cores with which a rank compiles."""

import pytest
import torch
from torch._inductor import config

from trainkit.compiler.startup import num_cores, shared_cores
from trainkit.training.run import run


@pytest.fixture(autouse=True)
def threads(monkeypatch):
    """Torch's own number, on a machine with many cores."""
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    with config.patch(compile_threads=32):
        yield


@pytest.mark.parametrize("num_ranks", [1, 2, 1000])
def test_ranks_share_the_cores(num_ranks):
    with shared_cores(num_ranks):
        assert config.compile_threads == max(1, min(32, num_cores() // num_ranks))
    assert config.compile_threads == 32


def test_a_number_of_the_users_stays(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "32")
    with shared_cores(1000):
        assert config.compile_threads == 32


def test_a_run_takes_its_share_and_restores_the_number(compose, monkeypatch):
    during = set()
    backward = torch.Tensor.backward

    def noting_backward(*arguments):
        during.add(config.compile_threads)
        backward(*arguments)

    monkeypatch.setattr("torch.Tensor.backward", noting_backward)
    row = run(compose("compile.backend=eager", "trainer.max_epochs=1", "trainer.limit_train_batches=2"))
    assert row.status == "ok"
    assert during == {min(32, num_cores())}
    assert config.compile_threads == 32
