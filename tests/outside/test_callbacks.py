"""Early stopping and a callback of a user's own, from a package and a config directory outside of trainkit."""

import json
from pathlib import Path

from tests import forked
from tests.conftest import ROOT
from trainkit.results.files import read_row

OUTSIDE = Path(__file__).parent
SHORT = ("trainer.accelerator=cpu", "logger=csv", "trainer.max_epochs=5", "trainer.limit_train_batches=4")


def test_early_stopping_and_an_own_callback_by_name(tmp_path):
    words = [
        "--config-dir",
        str(OUTSIDE / "conf"),
        *SHORT,
        "compile.backend=aot_eager",
        f"hydra.run.dir={tmp_path}/run",
    ]
    early = ["callbacks.early_stopping.patience=1", "callbacks.early_stopping.min_delta=100"]
    callbacks = ["callbacks=[early_stopping,step_counter]", *early]
    done = forked.python(ROOT / "train.py", *words, *callbacks, cwd=tmp_path, path=str(OUTSIDE))
    assert done.returncode == 0, done.stderr
    row = read_row(tmp_path / "run")
    assert row.callbacks == ["lightning.pytorch.callbacks.EarlyStopping", "lab.callbacks.StepCounter"]
    assert row.num_epochs == 2
    assert json.loads((tmp_path / "run" / "counts.json").read_text()) == [4, 4]
