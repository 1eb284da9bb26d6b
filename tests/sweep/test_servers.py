"""The servers of a sweep's jobs: how many start at once, and that nothing imports while a job runs."""

import json
import os
import select
import sys

import pytest
from omegaconf import OmegaConf

from tests import forked
from tests.conftest import ROOT
from trainkit.results.runs import read_rows
from trainkit.sweep.plan import Sweep
from trainkit.sweep.servers import num_servers_at_once, start_servers
from trainkit.sweep.slots import Slot

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: a fork does not go well elsewhere")
# Each job notes its server, when that started, and the time, in seconds since the machine has booted.
NOTES_SERVER = """import json, os, time
from pathlib import Path
from tests.networks import Plain
class Net(Plain):
    def __init__(self, name="net", **sizes):
        super().__init__(**sizes)
        ticks = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19])
        start_s, now_s = ticks / os.sysconf("SC_CLK_TCK"), time.clock_gettime(time.CLOCK_BOOTTIME)
        Path(os.environ["NOTES"], f"{name}-{os.getpid()}").write_text(json.dumps([os.getppid(), start_s, now_s]))
"""


@pytest.mark.parametrize(("num_cores", "num_servers"), [(1, 3), (2, 3), (8, 4), (64, 6)])
def test_machines_with_many_cores_start_more_servers(num_cores: int, num_servers: int, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(num_cores))
    assert num_servers_at_once() == num_servers


def test_all_servers_have_imported_before_a_job_is_measured_and_end_together(tmp_path):
    config = OmegaConf.create({"job": {"kind": "train"}, "hydra": {"job": {"env_set": {"A": "1"}}}})
    sweep = Sweep("name", tmp_path, config, None, 1, (Slot(), Slot()))
    with start_servers(sweep, [0, 1, 1], lock=os.open(tmp_path, os.O_RDONLY)) as servers:
        readable, _, _ = select.select(servers, [], [], 0)
        assert readable == servers
        processes = [server._process for server in servers]
    assert all(process.poll() is not None for process in processes)


def test_the_servers_of_three_repeats_start_at_once_and_each_runs_a_setting_once(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "mine.py").write_text(NOTES_SERVER)
    words = (
        "sweep=s", "model._target_=mine.Net", "+model.name=one,other", "compile.mode=eager", "logger=none",
        "trainer.max_epochs=1", "trainer.limit_train_batches=3", "hydra.launcher.repeats=3", "trainer.accelerator=cpu",
    )  # fmt: skip
    done = forked.python(ROOT / "train.py", "-m", *words, cwd=tmp_path, path=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row.status for row in read_rows(tmp_path)] == ["ok"] * 6
    notes = {}
    for name in ("one", "other"):
        notes[name] = [json.loads(path.read_text()) for path in (tmp_path / "notes").glob(f"{name}-*")]
    servers = {server for server, _, _ in notes["one"]}
    assert servers == {server for server, _, _ in notes["other"]}
    assert len(servers) == 3
    last_start_s = max(start_s for _, start_s, _ in notes["one"])
    assert all(last_start_s < now_s for _, _, now_s in notes["one"])
