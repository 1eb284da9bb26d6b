"""Resuming: the parameters of an uninterrupted run, and checkpoints that do not fit."""

import pytest

from tests.conftest import parameters, same
from tests.networks import network
from trainkit.config.errors import ConfigError
from trainkit.training.run import run

QUICK = ("trainer.max_epochs=2", "trainer.limit_train_batches=6")


def test_a_resumed_run_has_the_parameters_of_the_uninterrupted_one_bit_for_bit(compose, tmp_path):
    asked = ("compile.backend=aot_eager", network("Blocks"), "trainer.warmup_steps=30", "trainer.limit_train_batches=9")
    run(compose(*asked, "trainer.max_epochs=4", run_dir=tmp_path / "whole"))
    run(compose(*asked, "trainer.max_epochs=2", run_dir=tmp_path / "parts"))
    half = parameters(tmp_path / "parts")
    row = run(compose(*asked, "trainer.max_epochs=4", "ckpt_path=last", run_dir=tmp_path / "parts"))
    assert row.num_epochs == 2
    assert not same(half, parameters(tmp_path / "whole"))
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "whole"))
    assert (tmp_path / "parts" / "checkpoints" / "best.ckpt").exists()


@pytest.mark.parametrize(("first", "then"), [("default", "eager"), ("eager", "default")])
def test_a_checkpoint_written_in_one_mode_loads_in_the_other(first, then, compose, tmp_path):
    asked = ("compile.backend=aot_eager", *QUICK[1:])
    run(compose(*asked, f"compile.mode={first}", "trainer.max_epochs=1", run_dir=tmp_path / "first"))
    keys = parameters(tmp_path / "first").keys()
    assert all(key.startswith("objective.net.") for key in keys)
    assert not any("_orig_mod" in key for key in keys)
    path = tmp_path / "first" / "checkpoints" / "last.ckpt"
    config = compose(*asked, f"compile.mode={then}", "trainer.max_epochs=2", f"ckpt_path='{path}'")
    assert run(config).status == "ok"
    assert parameters(tmp_path / "run").keys() == keys


def test_max_steps_goes_with_resuming(compose, tmp_path):
    asked = ("compile.mode=eager", network("Blocks"), "trainer.max_epochs=9", "trainer.schedule=cosine")
    run(compose(*asked, "trainer.max_steps=66", run_dir=tmp_path / "whole"))
    run(compose(*asked, "trainer.max_steps=44", "trainer.schedule=constant", run_dir=tmp_path / "parts"))
    path = tmp_path / "parts" / "checkpoints" / "last.ckpt"
    row = run(compose(*asked[:3], "trainer.max_steps=66", f"ckpt_path='{path}'", run_dir=tmp_path / "then"))
    assert (row.status, row.num_steps, row.num_epochs) == ("ok", 22, 1)
    run(compose(*asked[:3], "trainer.max_steps=66", run_dir=tmp_path / "constant"))
    assert same(parameters(tmp_path / "then"), parameters(tmp_path / "constant"))
    assert not same(parameters(tmp_path / "whole"), parameters(tmp_path / "constant"))
    with pytest.raises(ConfigError, match=r"trainer\.max_steps = 44: the checkpoint has finished 44 steps"):
        run(compose(*asked[:3], "trainer.max_steps=44", f"ckpt_path='{path}'", run_dir=tmp_path / "again"))


def test_a_checkpoint_of_another_optimizer_is_one_line(compose, tmp_path):
    run(compose("compile.mode=eager", *QUICK, run_dir=tmp_path / "first"))
    path = tmp_path / "first" / "checkpoints" / "last.ckpt"
    with pytest.raises(ConfigError, match="is of another optimizer than"):
        run(compose("optimizer=sgd", "trainer.max_epochs=9", f"ckpt_path='{path}'"))


def test_a_checkpoint_of_another_network_or_of_a_finished_run_is_one_line(compose, tmp_path):
    run(compose("compile.mode=eager", *QUICK, run_dir=tmp_path / "first"))
    path = tmp_path / "first" / "checkpoints" / "last.ckpt"
    with pytest.raises(ConfigError, match="is of another network than model = simple_cnn"):
        run(compose("model.width=8", "trainer.max_epochs=3", f"ckpt_path='{path}'"))
    with pytest.raises(ConfigError, match=r"trainer\.max_epochs = 2: the checkpoint has finished 2 epochs"):
        run(compose(*QUICK, f"ckpt_path='{path}'"))
