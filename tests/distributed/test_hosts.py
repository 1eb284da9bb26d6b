"""Two agents of torchrun on this machine, as on two hosts: neither starts the other's rank."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT
from trainkit.results.files import read_epochs, read_row

TRAIN = ("data=digits", "trainer.accelerator=cpu", "trainer.limit_train_batches=6", "compile.mode=eager", "logger=none")
KILLED_ONCE = """
import ctypes, os, signal
from pathlib import Path
from tests.networks import Plain

class Net(Plain):
    steps = 0
    def forward(self, images):
        Net.steps += self.training
        restarted = Path("restarted" + os.environ["RANK"])
        if Net.steps == 9 and not restarted.exists():
            restarted.touch()
            if os.environ["RANK"] == "1":
                os.kill(os.getpid(), signal.SIGKILL)
            ctypes.CDLL(None).sleep(5)  # so that its agent restarts it without having counted a failure
        return super().forward(images)
"""


def run_agents(folders: Sequence[Path], *words: str, max_restarts: int = 0) -> list[str]:
    """Train in two agents, each in its folder. Returns what each has written to stderr."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    agent = (
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-id=1",
        "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", f"--max-restarts={max_restarts}",
        ROOT / "train.py", *TRAIN, *words,
    )  # fmt: skip
    path = os.pathsep.join([str(folders[0]), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    agents = []
    for folder in folders:
        agents.append(subprocess.Popen(agent, cwd=folder, env=env, stderr=subprocess.PIPE, text=True))
    try:
        errors = [process.communicate(timeout=240)[1] for process in agents]
    finally:
        for process in agents:
            process.kill()
    assert [process.returncode for process in agents] == [0, 0], "".join(errors)
    return errors


def test_two_agents_train_one_run(tmp_path):
    errors = run_agents([tmp_path, tmp_path], "model=simple_net", "trainer.max_epochs=1", "hydra.run.dir=run")
    row = read_row(tmp_path / "run")
    assert (row.status, row.world_size, row.num_epochs) == ("ok", 2, 1)
    assert "hydra.run.dir" not in "".join(errors)


def test_two_agents_restart_a_run_of_which_one_lost_its_rank(tmp_path):
    (tmp_path / "mine.py").write_text(KILLED_ONCE)
    words = ("model._target_=mine.Net", "model.width=4", "trainer.max_epochs=3")
    errors = run_agents([tmp_path, tmp_path], *words, max_restarts=1)
    (path,) = tmp_path.glob("runs/*/*/row.json")
    row = read_row(path.parent)
    assert (row.status, row.num_restarts, row.num_epochs) == ("ok", 1, 2)
    assert f"restart 1 by torchrun: goes on from {path.parent}/checkpoints/last.ckpt" in "".join(errors)
    assert [record.epoch for record in read_epochs(path.parent)] == [0, 1, 2]


@pytest.mark.skipif(sys.platform != "linux", reason="a path that leads elsewhere in each process")
def test_two_hosts_without_a_shared_run_directory_say_so(tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    run_dir = "/proc/self/cwd/run"
    errors = run_agents(folders, "model=simple_net", "trainer.max_epochs=1", f"hydra.run.dir={run_dir}")
    line = f"hydra.run.dir = {run_dir}: 1 of 2 ranks do not report here, so nobody notices if one hangs; choose one on "
    for error in errors:
        assert error.count(line) == 1
    rows = [read_row(folder / "run") for folder in folders]
    (row,) = [row for row in rows if row is not None]
    assert (row.status, row.world_size) == ("ok", 2)
