"""A run that torchrun restarts goes on from its newest whole checkpoint as if it had never stopped."""

import json
from pathlib import Path

from tests import forked
from tests.conftest import CONF, parameters, same
from tests.networks import network
from trainkit.distributed.restarts import FirstAttempt
from trainkit.results.files import read_epochs, read_row
from trainkit.training.restart import newest_whole_checkpoint
from trainkit.training.run import run

ASKED = (network("KilledOnce"), "compile.mode=eager", "logger=none", "trainer.max_epochs=3")
SIX_STEPS = ("trainer.limit_train_batches=6", "data.num_workers=1", "data.batch_size=32")


def only_run_dir(folder: Path) -> Path:
    (row,) = folder.glob("runs/*/*/row.json")
    return row.parent


def test_a_run_whose_rank_is_killed_ends_as_the_uninterrupted_one_to_the_bit(train, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    done = train(*ASKED, *SIX_STEPS, f"hydra.run.dir={whole}", ranks=2)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("KILLED", "1")
    done = train(*ASKED, *SIX_STEPS, ranks=2, max_restarts=1)
    assert done.returncode == 0, done.stderr
    run_dir = only_run_dir(tmp_path)
    assert f"restart 1 by torchrun: goes on from {run_dir}/checkpoints/last.ckpt" in done.stderr
    assert same(parameters(run_dir), parameters(whole))
    row, expected = read_row(run_dir), read_row(whole)
    assert (row.status, row.error, row.num_restarts, expected.num_restarts) == ("ok", None, 1, 0)
    assert (row.train_loss, row.val_loss) == (expected.train_loss, expected.val_loss)
    assert (row.num_epochs, row.num_steps) == (2, 12)  # of the second attempt
    records = list(read_epochs(run_dir))
    assert [(record.epoch, record.num_restarts) for record in records] == [(0, 0), (1, 1), (2, 1)]
    before = json.loads((run_dir / "row.1.json").read_text())
    assert (before["num_restarts"], before["num_epochs"]) == (0, 1)
    assert before["status"] != "ok"


def test_a_damaged_checkpoint_and_one_of_an_earlier_run_are_passed_over(compose, tmp_path, monkeypatch, capsys):
    run(compose("compile.mode=eager", "trainer.max_epochs=1", "trainer.limit_train_batches=2"))
    best, last = (tmp_path / "run" / "checkpoints" / f"{name}.ckpt" for name in ("best", "last"))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")

    def newest(began_ns: int) -> str:
        return newest_whole_checkpoint(FirstAttempt(str(tmp_path / "run"), began_ns))

    before_ns = best.stat().st_mtime_ns
    assert newest(before_ns) == str(last)
    last.write_bytes(last.read_bytes()[:-100])
    assert newest(before_ns) == str(best)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2].startswith(f"{last}: is cut off")
    assert lines[-2].endswith("; passed over")
    assert lines[-1] == f"restart 2 by torchrun: goes on from {best}"
    assert newest(last.stat().st_mtime_ns + 1) == ""
    assert "no checkpoint yet, begins again" in capsys.readouterr().err


def test_a_rank_that_is_killed_after_the_training_leaves_the_row_ok(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text(f"""
import os, signal
from pathlib import Path
from trainkit.config.composition import compose_config
from trainkit.training.run import run

words = ["logger=none", "compile.mode=eager", "trainer.accelerator=cpu", "trainer.max_epochs=1"]
row = run(compose_config([*words, "trainer.limit_train_batches=2"], Path("{CONF}"), "{tmp_path}"))
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
""")
    done = forked.python(script, cwd=tmp_path, ranks=2, max_restarts=1)
    assert done.returncode == 0, done.stderr
    row = read_row(tmp_path)
    assert (row.status, row.num_restarts, row.num_epochs, row.num_steps) == ("ok", 1, 1, 2)
    assert [record.epoch for record in read_epochs(tmp_path)] == [0]
