"""The cache of compiled code: warm is the user's own, cold a fresh one."""

import os

import pytest

from tests.conftest import parameters, same
from trainkit.compiler.caches import compile_cache
from trainkit.config.errors import ConfigError
from trainkit.training.run import run


def test_a_cache_that_has_it_all_is_warm(compose, tmp_path, needs_compiler):
    rows = [run(compose("trainer.max_epochs=1", run_dir=tmp_path / name)) for name in ("first", "second")]
    assert rows[1].cache_found == "warm"
    assert rows[1].num_graphs == rows[0].num_graphs


@pytest.mark.parametrize("strategy", ["auto", "compiled", "compiled ddp.shard_optimizer=true"])
def test_a_warm_cache_has_the_differentiated_graph_of_a_custom_function(
    strategy, compose, tmp_path, monkeypatch, needs_compiler
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # else Lightning sets another number for the second run
    words = ["model=gpt2", "model.dim=16", "model.num_heads=1", "model.depth=1", "data=synthetic", "data.seq_len=8"]
    words += ["trainer.max_epochs=1", "trainer.limit_train_batches=4", "trainer.limit_val_batches=0"]
    words += f"ddp.strategy={strategy}".split()
    for name in ("first", "second"):
        row = run(compose(*words, run_dir=tmp_path / name))
    # Two of inductor's, forward and backward, and one of AOTAutograd's.
    assert (row.cache_found, row.cache_hits, row.cache_misses) == ("warm", 3, 0)
    assert same(parameters(tmp_path / "first"), parameters(tmp_path / "second"))


def test_a_cold_cache_is_a_fresh_directory_and_the_environment_is_restored(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    with compile_cache("cold"):
        folder = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        assert os.listdir(folder) == []
        assert os.path.dirname(os.environ["TRITON_CACHE_DIR"]) == folder
        os.environ["SET_MEANWHILE"] = "1"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)
    assert "TRITON_CACHE_DIR" not in os.environ
    assert os.environ.pop("SET_MEANWHILE") == "1"
    assert not os.path.exists(folder)


def test_a_cache_that_cannot_be_written_is_one_line_for_runs_that_compile(compose, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        ConfigError, match=r"TORCHINDUCTOR_CACHE_DIR = \S+: compiled code cannot be written .*Not a dir"
    ):
        run(compose("trainer.max_epochs=1"))
    assert run(compose("trainer.max_epochs=1", "compile.mode=eager")).status == "ok"
