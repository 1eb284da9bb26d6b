"""A config directory of a user's own, in a run, a mistake, a diagnosis and a sweep that is reported."""

from pathlib import Path

from tests import forked
from tests.conftest import ROOT
from trainkit.results.runs import read_rows

OUTSIDE = Path(__file__).parent
TINY = ("model=tiny", "trainer.accelerator=cpu", "logger=none", "trainer.max_epochs=1", "compile.backend=aot_eager")


def python(script: str, folder: Path, *words: str):
    return forked.python(ROOT / script, *words, cwd=folder, path=str(OUTSIDE))


def test_an_own_network_is_swept_compared_and_reported(tmp_path):
    words = "-m", f"--config-dir={OUTSIDE / 'conf'}", *TINY, "compile.mode=eager,default", "sweep=s"
    done = python("train.py", tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(row.status, row.model) for row in read_rows(tmp_path)] == [("ok", "tiny")] * 2
    done = python("scripts/report.py", tmp_path, "runs/sweeps/s")
    assert done.returncode == 0, done.stderr
    assert "tiny on digits" in done.stdout


def test_a_search_path_is_searched_in_a_run_and_for_what_was_meant(tmp_path):
    search_path = f"hydra.searchpath=[{OUTSIDE / 'conf'}]"
    done = python("train.py", tmp_path, search_path, *TINY)
    assert done.returncode == 0, done.stderr
    for script in ("train.py", "scripts/diagnose.py"):
        done = python(script, tmp_path, search_path, "model=tiny", "model.widht=4", "learning_rate=1")
        assert (done.returncode, done.stderr.splitlines()) == (
            2,
            [
                "model.widht = 4: no such setting; did you mean model.width?",
                "learning_rate = 1: no such setting; did you mean optimizer.lr?",
            ],
        )
    done = python("train.py", tmp_path, "--config-dir=nowhere", "model=tiny")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("--config-dir = nowhere: no such folder; ")
