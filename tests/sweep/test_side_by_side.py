"""Jobs run side by side, each on cores of its own, and are stopped together."""

import json
import os
import signal
import sys
from functools import partial

import pytest

from tests import forked
from tests.conftest import ROOT
from tests.processes import wait_until
from trainkit.results.runs import read_rows

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two cores"
)
# Each job of a repeat waits for another, in training: one after the other they would never end.
MEETS_ANOTHER = """import json, os, time
from pathlib import Path
from tests.networks import Plain
class Net(Plain):
    def __init__(self, name="net", **sizes):
        super().__init__(**sizes)
        self.name = name
    def forward(self, images):
        if self.training:
            met = Path(os.environ["MEETING"], f"{self.name}-{os.getpid()}")
            met.write_text(json.dumps(sorted(os.sched_getaffinity(0))))
            while len(list(met.parent.iterdir())) % 2:
                time.sleep(0.01)
        return super().forward(images)
"""
WORDS = (
    "sweep=s", "compile.mode=eager", "logger=none", "model.width=4", "trainer.max_epochs=1",
    "trainer.limit_train_batches=5", "trainer.accelerator=cpu",
)  # fmt: skip


@pytest.fixture
def run_sweep(tmp_path, monkeypatch):
    """(words, ...) -> the sweep run to its end in tmp_path; `on_start` is called with its process."""
    (tmp_path / "meeting").mkdir()
    monkeypatch.setenv("MEETING", str(tmp_path / "meeting"))
    return partial(forked.python, ROOT / "train.py", "-m", *WORDS, cwd=tmp_path, path=str(tmp_path))


def test_jobs_run_at_once_on_cores_of_their_own_which_turn_with_the_repeats(run_sweep, tmp_path):
    (tmp_path / "mine.py").write_text(MEETS_ANOTHER)
    words = ("hydra.launcher.parallel=2", "hydra.launcher.repeats=2", "+model.name=one,other")
    done = run_sweep("model._target_=mine.Net", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    met = sorted((tmp_path / "meeting").iterdir(), key=lambda path: path.stat().st_mtime)
    for repeat in (met[:2], met[2:]):
        first, second = (set(json.loads(path.read_text())) for path in repeat)
        assert first.isdisjoint(second), "the same cores for both jobs"
    for name in ("one", "other"):
        first, second = (json.loads(path.read_text()) for path in (tmp_path / "meeting").glob(f"{name}-*"))
        assert set(first).isdisjoint(second), "the same cores in both repeats"
    assert [(row.status, row.num_parallel_jobs) for row in read_rows(tmp_path)] == [("ok", 2)] * 4
    assert "2 jobs side by side" in done.stdout
    for number in range(4):
        name = ("one", "other")[number % 2]
        assert f"[{number + 1}/4] +model.name={name} (repeat {number // 2}): " in done.stdout


def test_repeats_of_one_setting_run_at_once(run_sweep, tmp_path):
    (tmp_path / "mine.py").write_text(MEETS_ANOTHER)
    words = ("hydra.launcher.parallel=2", "hydra.launcher.repeats=2", "hydra.launcher.nproc_per_node=1")
    done = run_sweep("model._target_=mine.Net", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (set(json.loads(path.read_text())) for path in (tmp_path / "meeting").iterdir())
    assert first.isdisjoint(second)
    rows = read_rows(tmp_path)
    assert sorted((row.repeat, row.status, row.num_parallel_jobs) for row in rows) == [(0, "ok", 2), (1, "ok", 2)]


def test_jobs_under_way_are_stopped_together(run_sweep, tmp_path):
    def stop(sweep: int) -> None:
        wait_until(lambda: sum(row.device_name is not None for row in read_rows(tmp_path)) == 2)
        os.kill(sweep, signal.SIGTERM)

    words = ("model._target_=tests.networks.Sleeps", "hydra.launcher.parallel=2", "seed=0,1")
    done = run_sweep(*words, on_start=forked.beside(stop))
    assert done.returncode == 143, done.stdout + done.stderr
    rows = read_rows(tmp_path)
    assert [(row.status, row.error) for row in rows] == [("interrupted", "the sweep was interrupted")] * 2


def test_torchrun_and_jobs_side_by_side_exclude_each_other(tmp_path):
    words = ("hydra.launcher.parallel=2", "hydra.launcher.nproc_per_node=2")
    done = forked.python(ROOT / "train.py", "-m", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "hydra.launcher.parallel = 2: runs jobs of one process; set hydra.launcher.nproc_per_node=1\n",
    )
