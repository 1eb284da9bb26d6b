"""`import trainkit`: compose, run, read, compare and diagnose from Python, and what is left of it in the process."""

import os
import subprocess
import sys

import pytest
import torch
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

import trainkit
from tests.conftest import CONF, ROOT
from trainkit.diagnosis import break_costs

TINY = [
    "model=simple_net",
    "trainer.max_epochs=1",
    "logger=none",
    "trainer.accelerator=cpu",
    "compile.backend=aot_eager",
]


def test_the_package_is_typed_and_imports_nothing():
    assert (ROOT / "trainkit" / "py.typed").exists()
    program = "import sys, trainkit; print([name for name in ('torch', 'hydra', 'lightning') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert sorted(trainkit.MODULES) == sorted(trainkit.__all__)
    for name in trainkit.__all__:
        assert getattr(trainkit, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trainkit.nothing


def test_two_modes_are_trained_and_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    epochs = []
    for mode in ("eager", "default"):
        config = trainkit.compose([*TINY, f"compile.mode={mode}"])
        row = trainkit.run(config, on_epoch=epochs.append)
        assert (row.status, row.error, row.compile_mode) == ("ok", None, mode)
    assert [record.epoch for record in epochs] == [0, 0]
    rows = trainkit.read_rows("runs")
    assert sorted(row.compile_mode for row in rows) == ["default", "eager"]
    (group,) = trainkit.compare(rows).groups
    assert sorted(candidate.label for candidate in group.candidates) == ["default", "eager"]


def test_a_network_is_called_forward_only(tmp_path):
    words = ["compile.mode=eager", "forward.num_calls=5", f"hydra.run.dir={tmp_path / 'a'}", "logger=none"]
    fallback = ["forward.deadline_ms=1000", "forward.fallback=['model=simple_net']"]
    row = trainkit.run(trainkit.compose([*words, *fallback], forward=True))
    assert (row.status, row.kind, [stage.model for stage in row.chain]) == (
        "ok",
        "forward",
        ["simple_cnn", "simple_net"],
    )
    assert [row.run_id for row in trainkit.read_rows(tmp_path / "a")] == [row.run_id]


def test_mistakes_are_one_error_and_the_users_own_hydra_stays(tmp_path):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        hydra, config = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
        with pytest.raises(trainkit.ConfigError) as error:
            trainkit.compose(["compile.mode=foo", "seed=a"], config_dir=CONF)
        assert len(error.value.complaints) == 2
        assert (GlobalHydra.instance().hydra, HydraConfig.instance().cfg) == (hydra, config)
    with pytest.raises(trainkit.ConfigError, match=f"^--config-dir = {tmp_path}/no: no such folder; "):
        trainkit.compose(config_dir=tmp_path / "no")


def test_a_diagnosis_leaves_the_process_as_it_was(monkeypatch):
    monkeypatch.setattr(break_costs, "NUM_ROUNDS", 1)
    words = ["model._target_=tests.defects.TensorBranch", "compile.backend=eager", "amp.matmul_precision=high"]
    before = dict(os.environ), torch.get_float32_matmul_precision()
    diagnosis = trainkit.diagnose(trainkit.compose([*words, "trainer.accelerator=cpu", "logger=none"]))
    assert [finding.kind for finding in diagnosis.findings] == ["graph break"]
    assert all(phase.step_time_ms is not None for phase in diagnosis.phases)
    assert (dict(os.environ), torch.get_float32_matmul_precision()) == before
