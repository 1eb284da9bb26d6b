"""Ranks that are forked end as those of torchrun do."""

import os
import signal
from pathlib import Path

from tests import forked

PROGRAM = """
import os, signal, time
from pathlib import Path
rank = os.getpid()
if os.environ["RANK"] == "0":
    Path("other").touch()
elif os.fork() == 0:  # as a DataLoader worker, it has open what the rank has open
    Path("worker").write_text(str(os.getpid()))
    time.sleep(600)
else:
    while not (Path("other").exists() and Path("worker").exists()):
        time.sleep(0.01)
"""
TIMEOUT_S = 60


def test_a_launch_ends_when_a_rank_that_forked_is_killed_and_the_others_are_over(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM + "    os.kill(rank, signal.SIGKILL)\n")
    done = forked.python(script, cwd=tmp_path, ranks=2, timeout_s=TIMEOUT_S)
    os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)
    assert done.returncode == 1
    assert "SIGKILL" in done.stderr


def test_a_rank_is_over_with_its_script(tmp_path):
    """The agent of torch that forks functions waits for their workers, and forever for one that is killed after it."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = forked.python(script, cwd=tmp_path, ranks=2, timeout_s=TIMEOUT_S)
    os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)
    assert done.returncode == 0, done.stderr


def test_a_launch_that_is_stopped_names_the_signal(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text("""
import os, signal
from tests.forked import together
together()
if os.environ["RANK"] == "0":
    os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
""")
    done = forked.python(script, cwd=tmp_path, ranks=2, timeout_s=TIMEOUT_S)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "stopped by SIGTERM")


def test_a_launch_that_is_stopped_while_it_forks_leaves_no_rank(tmp_path):
    (tmp_path / "waits.py").write_text("import signal\nsignal.pause()\n")
    script = tmp_path / "launches.py"
    script.write_text("""
import os, signal
from pathlib import Path
from trainkit.sweep import torchrun
class StoppedRank(torchrun.ForkedRank):
    def __init__(self, args, env, **unused):
        if env["LOCAL_RANK"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)
        super().__init__(args, env)
        Path("rank").write_text(str(self.pid))
torchrun.ForkedRank = StoppedRank
torchrun.run_torchrun([*torchrun.ONE_HOST, "--nproc-per-node=2", "waits.py"])
""")
    done = forked.python(script, cwd=tmp_path, timeout_s=TIMEOUT_S)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "stopped by SIGTERM")
    assert not Path(f"/proc/{(tmp_path / 'rank').read_text()}").exists()
