"""Two real ranks, one of which is killed, hangs, is told to stop, or compiles for long: what the row says."""

import errno
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
from tests.processes import wait_until
from trainkit.distributed.launch import Launch
from trainkit.distributed.peers import SILENCE_S, Peers
from trainkit.distributed.ranks import Ranks
from trainkit.distributed.watch import GRACE_S, INTERVAL_S, Watch
from trainkit.results.files import read_row
from trainkit.results.ranks import FOLDER, Cause, RankReport, read_reports, remove_report, write_report
from trainkit.results.row import Row

ROOT = Path(__file__).parents[2]
LOST_S, STOPPED_S = 30, 20  # what Watch guarantees
NETWORK = r"""
import ctypes, os, signal, time
import torch
from torch._dynamo import register_backend
from tests.networks import Plain
from trainkit.distributed.peers import Peers

IS_CHOSEN = os.environ["RANK"] == os.environ["CHOSEN"]

def note():  # when something comes next
    with open("moments", "a") as file:
        print(time.time(), file=file)

class Net(Plain):
    steps = 0
    begun = False
    def forward(self, images):
        if self.training and not torch.compiler.is_compiling():
            Net.begun = True
            Net.steps += 1
            os.write(1, b"step %d\n" % Net.steps)  # at once: two ranks write
            if Net.steps == 3 and not IS_CHOSEN:
                open("partner_in_step_3", "w").close()
            if Net.steps == 3 and IS_CHOSEN:
                {at_step_3}
        return super().forward(images)

hang = Peers.hang  # of the start-up that a busy machine draws out, the tests say nothing
Peers.hang = lambda peers: hang(peers) if Net.begun else None

@register_backend
def slow(graph, inputs):
    Net.begun = True
    if IS_CHOSEN and "conv2d" not in graph.code:  # which a process compiles first and throws away
        {in_compile}
    return graph.forward
"""
# The row says the step in which the partner is, which may still be in the step before.
KILL = """
                while not os.path.exists("partner_in_step_3"):
                    time.sleep(0.01)
                note(); os.kill(os.getpid(), signal.SIGKILL)
"""
IN_C = (
    "note(); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "  # so that the call is not interrupted
    "os.kill(os.getpid(), signal.SIGTERM); ctypes.CDLL(None).sleep(60)"
)
# A process that is told to stop, and has little time for it.
TOLD = """
import ctypes, os, resource, signal, time
from pathlib import Path
from trainkit.distributed import watch
from trainkit.distributed.launch import Launch
from trainkit.results.row import Row

watch.GRACE_S = 0.2
with watch.Watch(Launch(Path("run"), world_size={ranks}), Row(run_id="run", status="interrupted")) as watched:
    watched.begin()
    {then}
"""
IN_C_WITH_FULL_DISK = """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # so that the call is not interrupted
    os.kill(os.getpid(), signal.SIGTERM)
    ctypes.CDLL(None).sleep(60)
"""
TRAINS = """
    watched.stops_in_order = True
    os.kill(os.getpid(), signal.SIGTERM)
    while watched.stop.begin_step():
        time.sleep(0.01)
"""
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


def seconds_since_moment(folder: Path, end: float) -> float:
    """From the moment that the network noted first to `end`."""
    moments = (folder / "moments").read_text().split()
    seconds = end - float(moments[0])
    print(f"{seconds:.1f} s")
    return seconds


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_rank_that_is_killed_is_in_the_row(chosen, train_chosen, tmp_path):
    done, row = train_chosen(chosen, "compile.mode=eager", at_step_3=KILL)
    assert done.returncode != 0
    reason = f"rank {chosen}, step 3 (epoch 0): its process was lost (killed, or out of memory)"
    assert (row.status, row.error) == ("failed", reason)
    assert row.device_name
    assert seconds_since_moment(tmp_path, (tmp_path / "run" / "row.json").stat().st_mtime) < LOST_S


def test_the_guarantees_leave_time_for_some_looks():
    assert SILENCE_S + 3 * INTERVAL_S < LOST_S  # the last report is heard of, it has been silent, that is seen
    assert GRACE_S + 3 * INTERVAL_S < STOPPED_S  # another rank is told, tells this one, this one's time is over


def test_a_rank_that_another_one_stopped_waits_for_no_other_cause(tmp_path, monkeypatch):
    monkeypatch.setattr("trainkit.distributed.ranks.time.sleep", pytest.fail)
    stopped = Cause("interrupted", "stopped by SIGTERM")
    told = RankReport(1, "a", "here", os.getpid(), status=stopped.status, reason=stopped.reason, failed_at=1.0)
    write_report(tmp_path, told)
    ranks = Ranks(Launch(tmp_path, 0, 2, "a", "here"))
    ranks.tell_cause(stopped, follows=True)
    assert ranks.cause() == stopped


def test_a_rank_of_another_host_is_lost_once_it_has_been_silent(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr("trainkit.distributed.peers.time.monotonic", lambda: now)
    peers = Peers(Launch(tmp_path, 0, 2, "a", "here"), timeout_s=1000)
    own = RankReport(0, "a", "here", os.getpid(), time=1.0, place="step 4 (epoch 0)")
    write_report(tmp_path, RankReport(1, "a", "there", pid=1, time=1.0))
    peers.look(own)
    now = SILENCE_S
    peers.look(own)
    assert (peers.cause(), peers.gone) == (None, set())
    now = SILENCE_S + INTERVAL_S
    peers.look(own)
    reason = "rank 1, step 4 (epoch 0): its process was lost (killed, or out of memory)"
    assert (peers.cause(), peers.gone) == (Cause("failed", reason), {1})


def test_a_report_that_cannot_be_written_is_written_later_and_nobody_is_lost_meanwhile(tmp_path, monkeypatch):
    now, failures = 0.0, []

    def fail(*_: object) -> None:
        failures.append(OSError(errno.ENOSPC, "No space left on device"))
        raise failures[-1]

    monkeypatch.setattr("trainkit.distributed.watch.INTERVAL_S", 0.02)
    monkeypatch.setattr("trainkit.distributed.peers.time.monotonic", lambda: now)
    write_report(tmp_path, RankReport(1, "a", "there", pid=1, time=1.0))
    with Watch(Launch(tmp_path, 0, 2, "a", "here"), Row(run_id="run", status="interrupted")) as watch:
        with monkeypatch.context() as full_disk:
            full_disk.setattr("trainkit.distributed.ranks.write_report", fail)
            wait_until(lambda: len(failures) > 1)
            now = 2 * SILENCE_S
            wait_until(lambda: len(failures) > 4)
        told_at = watch.ranks.own.time
        wait_until(lambda: any(report.rank == 0 and report.time > told_at for report in read_reports(tmp_path)))
        assert (watch.ranks.peers.cause(), watch.ranks.peers.gone) == (None, set())
        watch.end(is_ok=True)


def test_a_full_disk_keeps_no_process_from_its_end(tmp_path):
    (tmp_path / "full.py").write_text(TOLD.format(ranks=1, then=IN_C_WITH_FULL_DISK))
    done = forked.python(tmp_path / "full.py", cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGTERM


def test_a_rank_that_cannot_agree_with_others_on_a_step_ends_with_a_row(tmp_path):
    (tmp_path / "alone.py").write_text(TOLD.format(ranks=2, then=TRAINS))  # the other one does not report here
    done = forked.python(tmp_path / "alone.py", cwd=tmp_path, timeout_s=60)
    row = read_row(tmp_path / "run")
    assert (done.returncode, row.status, row.error) == (128 + signal.SIGTERM, "interrupted", "stopped by SIGTERM")


def test_a_rank_that_has_ended_does_not_keep_a_hang_from_being_seen(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr("trainkit.distributed.peers.time.monotonic", lambda: now)
    peers = Peers(Launch(tmp_path, 0, 3, "a", "here"), timeout_s=8)
    own = RankReport(0, "a", "here", os.getpid(), time=2.0, place="step 4 (epoch 0)")
    write_report(tmp_path, RankReport(1, "a", "here", os.getpid(), time=1.0))
    peers.look(own)
    now = 10.0
    peers.look(own)
    assert peers.hang() is None  # the third may be starting
    write_report(tmp_path, RankReport(2, "a", "here", os.getpid(), time=1.0))
    peers.look(own)
    remove_report(tmp_path, 2)
    peers.look(own)
    now = 20.0
    peers.look(own)
    assert peers.hang() == Cause("failed", "all ranks, step 4 (epoch 0): hung for 8 s (ddp.timeout_s)")


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


def test_a_rank_that_compiles_in_c_is_ended_with_a_row(train_chosen, tmp_path):
    done, row = train_chosen(1, "compile.backend=slow", "compile.scope=net", "compile.cache=cold", in_compile=IN_C)
    assert done.returncode != 0
    assert (row.status, row.error) == ("interrupted", f"stopped by {signal.SIGTERM.name} while compiling")
    assert seconds_since_moment(tmp_path, time.time()) < STOPPED_S  # both ranks and torchrun have ended


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


@pytest.mark.parametrize("numbers", [(), (signal.SIGTERM, signal.SIGUSR2)])
def test_submitit_requeues_a_job_whatever_tells_rank_0_first(numbers, tmp_path, monkeypatch):
    requeues = []
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    before = signal.signal(signal.SIGUSR2, lambda number, frame: requeues.append(number))
    if not numbers:
        reason = "stopped by SIGUSR2 while compiling"
        told = RankReport(1, "a", "there", pid=1, time=1.0, status="interrupted", reason=reason, failed_at=1.0)
        write_report(tmp_path, told)
    with Watch(Launch(tmp_path, 0, 2, "a", "here"), Row(run_id="run", status="interrupted")) as watch:
        for number in numbers:
            os.kill(os.getpid(), number)
        wait_until(lambda: watch.ranks.own_cause is not None)
        with pytest.raises(SIGTERMException):
            watch.begin()
        watch.end(is_ok=False)
    assert requeues == [signal.SIGUSR2]
    signal.signal(signal.SIGUSR2, before)
