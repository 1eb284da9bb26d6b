"""Two real ranks, one of which is killed, hangs, is told to stop, or compiles for long: what the row says."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException

from tests import forked
from tests.networks import network
from trainkit.distributed.launch import Launch
from trainkit.distributed.peers import Peers
from trainkit.distributed.watch import Watch
from trainkit.results.files import read_row
from trainkit.results.ranks import FOLDER, Cause, RankReport, write_report
from trainkit.results.row import Row

ROOT = Path(__file__).parents[2]
NETWORK = r"""
import ctypes, os, signal, time
import torch
from torch._dynamo import register_backend
from tests.networks import Plain

IS_CHOSEN = os.environ["RANK"] == os.environ["CHOSEN"]

class Net(Plain):
    steps = 0
    def forward(self, images):
        if self.training and not torch.compiler.is_compiling():
            Net.steps += 1
            os.write(1, b"step %d\n" % Net.steps)  # at once: two ranks write
            if IS_CHOSEN and Net.steps == 3:
                {at_step_3}
        return super().forward(images)

@register_backend
def slow(graph, inputs):
    if IS_CHOSEN and "conv2d" not in graph.code:  # which a process compiles first and throws away
        {in_compile}
    return graph.forward
"""
IN_C = (
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "  # so that the call is not interrupted
    "os.kill(os.getpid(), signal.SIGTERM); ctypes.CDLL(None).sleep(60)"
)
# Runs a script that gets a signal when it has just locked the run directory.
AT_LOCK = """
import fcntl, os, runpy, signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
lock = fcntl.lockf
def lock_and_signal(*words):
    lock(*words)
    os.kill(os.getpid(), signal.Signals[{name!r}])
fcntl.lockf = lock_and_signal
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.fixture
def train_chosen(tmp_path, monkeypatch):
    """(rank, ..., settings): runs two ranks of which one does something. Returns the process and the row."""

    def trained(chosen: int, *settings: str, at_step_3: str = "pass", in_compile: str = "pass"):
        monkeypatch.setenv("CHOSEN", str(chosen))
        (tmp_path / "mine.py").write_text(NETWORK.format(at_step_3=at_step_3, in_compile=in_compile))
        words = ("model._target_=mine.Net", "model.width=4", "logger=none", "trainer.accelerator=cpu")
        done = forked.python(
            ROOT / "train.py", *words, *settings, "hydra.run.dir=run", cwd=tmp_path, path=str(tmp_path), ranks=2
        )
        return done, read_row(tmp_path / "run")

    return trained


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_rank_that_is_killed_is_in_the_row(chosen, train_chosen):
    done, row = train_chosen(chosen, "compile.mode=eager", at_step_3="os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode != 0
    reason = f"rank {chosen}, step 3 (epoch 0): its process was lost (killed, or out of memory)"
    assert (row.status, row.error) == ("failed", reason)
    assert row.device_name


def test_a_rank_that_hangs_is_in_the_row(train_chosen):
    done, row = train_chosen(1, "compile.mode=eager", "ddp.timeout_s=8", at_step_3="time.sleep(200)")
    assert done.returncode != 0
    reason = "rank 1, step 3 (epoch 0): hung; the others waited for it for 8 s (ddp.timeout_s)"
    assert (row.status, row.error) == ("failed", reason)


def test_a_rank_that_is_slow_but_alive_is_waited_for(train_chosen):
    settings = ("compile.mode=eager", "ddp.timeout_s=4", "trainer.max_epochs=1", "trainer.limit_train_batches=8")
    slowly = "Net.steps = 2; time.sleep(1)"  # in every step from the third on
    done, row = train_chosen(1, *settings, "trainer.limit_val_batches=0", at_step_3=slowly)
    assert (row.status, row.error, row.num_steps) == ("ok", None, 8), done.stderr


def test_a_clock_that_is_set_changes_nothing_about_who_is_silent(tmp_path):
    peers = Peers(Launch(tmp_path, 0, 2, "a", "here"), timeout_s=4)
    for hours in (0, -5, 5):
        write_report(tmp_path, RankReport(1, "a", "here", os.getpid(), time=time.time() + 3600 * hours))
        peers.look(RankReport(0, "a", "here", os.getpid(), time=time.time()))
        assert (peers.silent(), peers.cause(), peers.gone) == ([], None, set())


def test_ranks_wait_for_one_that_compiles_longer_than_their_timeout(train_chosen, tmp_path):
    settings = ("compile.backend=slow", "compile.scope=net", "ddp.timeout_s=8", "trainer.max_epochs=1")
    limits = ("trainer.limit_train_batches=3", "trainer.limit_val_batches=0")
    done, row = train_chosen(1, *settings, *limits, in_compile="time.sleep(12)")
    assert (row.status, row.error, row.num_steps) == ("ok", None, 3), done.stderr
    assert row.compile_time_s > 12
    assert not (tmp_path / "run" / FOLDER).exists()


def test_a_rank_that_is_told_to_stop_stops_all_before_the_same_step(train_chosen, tmp_path):
    settings = ("compile.mode=eager", "trainer.max_epochs=10000")
    done, row = train_chosen(1, *settings, at_step_3="os.kill(os.getpid(), signal.SIGTERM)")
    assert (row.status, row.error) == ("interrupted", "stopped by SIGTERM"), done.stderr
    steps = re.findall(r"^step \d+$", done.stdout, re.MULTILINE)
    assert steps.count("step 3") == 2
    assert len(steps) == 2 * len(set(steps))
    written = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert (written["global_step"], len(written["ranks"])) == (len(set(steps)), 2)


def test_a_rank_that_compiles_in_c_is_ended_with_a_row(train_chosen):
    done, row = train_chosen(1, "compile.backend=slow", "compile.scope=net", "compile.cache=cold", in_compile=IN_C)
    assert done.returncode != 0
    assert (row.status, row.error) == ("interrupted", f"stopped by {signal.SIGTERM.name} while compiling")


@pytest.mark.parametrize("script", ["train.py", "scripts/bench.py"])
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_as_a_run_takes_its_directory_ends_in_a_row(script, name, status, tmp_path):
    (tmp_path / "signaled.py").write_text(AT_LOCK.format(name=name, script=str(ROOT / script)))
    words = (network("Plain"), "logger=none", "trainer.accelerator=cpu", "compile.mode=eager", "hydra.run.dir=run")
    done = forked.python(tmp_path / "signaled.py", *words, cwd=tmp_path)
    row = read_row(tmp_path / "run")
    assert row is not None
    assert (done.returncode, row.status, row.error) == (status, "interrupted", f"stopped by {name}")
    assert "Traceback" not in done.stderr


def test_a_signal_before_a_run_begins_ends_it_where_it_becomes_a_row(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with Watch(Launch(tmp_path), Row(run_id="run", status="interrupted")) as watch:
        os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(SIGTERMException):
            watch.begin()
        assert watch.ranks.cause() == Cause("interrupted", "stopped by SIGHUP")
        watch.end(is_ok=False)
    signal.signal(signal.SIGHUP, before)
