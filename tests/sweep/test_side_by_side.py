"""Jobs run side by side, each on cores of its own, and are stopped together."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


def start_sweep(folder: Path, *words: str) -> subprocess.Popen:
    (folder / "meeting").mkdir()
    variables = {
        "PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{folder}",
        "MEETING": str(folder / "meeting"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(ROOT / "train.py"), "-m", *WORDS, *words]
    return subprocess.Popen(command, cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, text=True)


def test_jobs_run_at_once_on_cores_of_their_own_which_turn_with_the_repeats(tmp_path):
    (tmp_path / "mine.py").write_text(MEETS_ANOTHER)
    words = ("hydra.launcher.parallel=2", "hydra.launcher.repeats=2", "+model.name=one,other")
    with start_sweep(tmp_path, "model._target_=mine.Net", *words) as sweep:
        output, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, output
    met = sorted((tmp_path / "meeting").iterdir(), key=lambda path: path.stat().st_mtime)
    for repeat in (met[:2], met[2:]):
        first, second = (set(json.loads(path.read_text())) for path in repeat)
        assert first.isdisjoint(second), "the same cores for both jobs"
    for name in ("one", "other"):
        first, second = (json.loads(path.read_text()) for path in (tmp_path / "meeting").glob(f"{name}-*"))
        assert set(first).isdisjoint(second), "the same cores in both repeats"
    assert [(row.status, row.num_parallel_jobs) for row in read_rows(tmp_path)] == [("ok", 2)] * 4
    assert "2 jobs side by side" in output
    for number in range(4):
        name = ("one", "other")[number % 2]
        assert f"[{number + 1}/4] +model.name={name} (repeat {number // 2}): " in output


def test_repeats_of_one_setting_run_at_once(tmp_path):
    (tmp_path / "mine.py").write_text(MEETS_ANOTHER)
    words = ("hydra.launcher.parallel=2", "hydra.launcher.repeats=2", "hydra.launcher.nproc_per_node=1")
    with start_sweep(tmp_path, "model._target_=mine.Net", *words) as sweep:
        output, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, output
    first, second = (set(json.loads(path.read_text())) for path in (tmp_path / "meeting").iterdir())
    assert first.isdisjoint(second)
    rows = read_rows(tmp_path)
    assert sorted((row.repeat, row.status, row.num_parallel_jobs) for row in rows) == [(0, "ok", 2), (1, "ok", 2)]


def test_jobs_under_way_are_stopped_together(tmp_path):
    with start_sweep(
        tmp_path, "model._target_=tests.networks.Sleeps", "hydra.launcher.parallel=2", "seed=0,1"
    ) as sweep:
        wait_until(lambda: sum(row.device_name is not None for row in read_rows(tmp_path)) == 2, sweep)
        sweep.send_signal(signal.SIGTERM)
        output, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 143, output
    rows = read_rows(tmp_path)
    assert [(row.status, row.error) for row in rows] == [("interrupted", "the sweep was interrupted")] * 2


def test_torchrun_and_jobs_side_by_side_exclude_each_other(tmp_path):
    words = ("hydra.launcher.parallel=2", "hydra.launcher.nproc_per_node=2")
    command = [sys.executable, str(ROOT / "train.py"), "-m", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (
        2,
        "hydra.launcher.parallel = 2: runs jobs of one process; set hydra.launcher.nproc_per_node=1\n",
    )
