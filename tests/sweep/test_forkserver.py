"""A forked job is like one that is started anew, and leaves nothing however it, its server or its sweep ends."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from benchmarks.kills import MARK, marked
from tests.processes import children, is_running, wait_until, wait_until_gone
from trainkit.sweep import processes
from trainkit.sweep.forkserver import Forkserver
from trainkit.sweep.plan import Sweep
from trainkit.sweep.processes import default_compile_cache, stop_process
from trainkit.sweep.servers import forkserver_of
from trainkit.sweep.slots import Slot

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux alone")

WORKER_START = "TORCHINDUCTOR_WORKER_START"
JOB = """import atexit, json, os, signal, sys, threading, time
ours = os.getsid(0) == os.getpid()
found = [__name__, sys.argv, sys.path[0], sys.stdin.read(), ours, hasattr(json, "left_behind"), hash("a")]
json.left_behind = True
print(json.dumps(found), flush=True)
atexit.register(print, "last")  # not flushed
atexit.register(print, "ended", flush=True)
json.still_open = [open(__file__ + ".log", "w"), open(__file__ + ".bin", "w+b")]  # a module that lasts
print(sys.argv[1], file=json.still_open[0])
json.still_open[1].write(sys.argv[1].encode())
threading.Thread(target=lambda: (time.sleep(0.1), print("joined", flush=True))).start()
if "killed" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
raise SystemExit(3 if "fails" in sys.argv else None)
"""
# It ignores SIGINT, as a rank in a long call does, and leaves a temporary file and an orphan in a session of its own.
LEAVES_AN_ORPHAN = """import signal, subprocess, sys, tempfile
from pathlib import Path
signal.signal(signal.SIGINT, signal.SIG_IGN)
forever = [sys.executable, "-c", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"]
starts = f"import subprocess; subprocess.Popen({forever}, start_new_session=True)"
subprocess.run([sys.executable, "-c", starts])
Path(tempfile.mkdtemp(), "file").touch()
print("ready", flush=True)
if "stays" in sys.argv:
    signal.pause()
"""
# It is killed while its compiler, which has written one library, writes another.
COMPILES = """import os, signal, subprocess, sys
writes = "open('whole.so', 'w').close(); file = open('cut_off.so', 'w'); print(flush=True)"
command = [sys.executable, "-c", f"import signal; {writes}; signal.pause()"]
compiler = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
compiler.stdout.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""
SWEEP = """import fcntl, os, sys
from pathlib import Path
from trainkit.sweep.forkserver import Forkserver
job, log, scratch, lock = map(Path, sys.argv[1:])
with lock.open("w") as file, Forkserver([], dict(os.environ), scratch, file.fileno()) as forkserver:
    fcntl.flock(file, fcntl.LOCK_EX)
    forkserver.start([str(job), "stays"], log).wait()
"""


def test_servers_do_their_imports_at_the_same_time(tmp_path, monkeypatch):
    (tmp_path / "met.py").write_text(
        "import os, time\n"
        f"folder = {str(tmp_path / 'meeting')!r}\n"
        "open(os.path.join(folder, str(os.getpid())), 'w').close()\n"
        "end = time.monotonic() + 20\n"
        "while len(os.listdir(folder)) < 2:\n"
        "    assert time.monotonic() < end, 'the other server has not begun'\n"
    )
    (tmp_path / "meeting").mkdir()
    (tmp_path / "job.py").write_text("import sys; sys.exit('met' not in sys.modules)")
    monkeypatch.syspath_prepend(tmp_path)
    one, other = (Forkserver(["met"], dict(os.environ), tmp_path / name) for name in ("one", "other"))
    with one, other:
        for server in (one, other):
            assert server.start([str(tmp_path / "job.py")], tmp_path / "log").wait(60) == 0


def test_a_forked_job_is_as_one_started_anew(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    log, scratch, hashes = tmp_path / "log", tmp_path / "scratch", set()
    for _ in range(2):
        with Forkserver(["json"], environment, scratch) as forkserver:
            for word, status in (("ends", 0), ("fails", 3), ("killed", -signal.SIGKILL)):
                command = [str(tmp_path / "job.py"), word, "a b\n"]
                job = forkserver.start(command, log)
                assert job.wait(60) == status
                said = log.read_text().splitlines()
                *found, hashed = json.loads(said[0])
                assert found == ["__main__", command, sys.path[0], "", True, False]
                assert said[1:] == ([] if word == "killed" else ["joined", "ended", "last"])
                assert (tmp_path / "job.py.log").read_text() == ("" if word == "killed" else f"{word}\n")
                assert (tmp_path / "job.py.bin").read_text() == ("" if word == "killed" else word)
                hashes.add(hashed)
            server = forkserver._process
            wait_until(partial(children, server.pid), server)
            (waiting,) = children(server.pid)
        wait_until_gone(waiting)
        assert server.returncode == 0
    assert len(hashes) == 2  # alike for all jobs of one server: what comes of it is another repeat's in the other
    unknown = ["nothing_of_this_name"]
    with Forkserver(unknown, environment, scratch) as forkserver:  # started anew, and says what is wrong
        assert forkserver.start([str(tmp_path / "job.py"), "fails"], log).wait(60) == 3


@pytest.fixture
def orphaning(tmp_path):
    """A script that leaves an orphan and a temporary file, and an environment that marks all processes of the test."""
    script = tmp_path / "job.py"
    script.write_text(LEAVES_AN_ORPHAN)
    yield script, os.environ | {MARK: str(tmp_path)}
    for pid in marked(str(tmp_path)):  # of a failed test, and the orphan of a killed server
        os.kill(pid, signal.SIGKILL)


def is_ready(log: Path) -> bool:
    return log.exists() and "ready" in log.read_text()


@pytest.mark.parametrize("end", ["by itself", "stopped", "killed"])
def test_the_end_of_a_job_leaves_no_process_and_no_temporary_file(end, orphaning, tmp_path, monkeypatch):
    script, environment = orphaning
    monkeypatch.setattr(processes, "GRACE_S", 0.1)
    log, scratch = tmp_path / "log", tmp_path / "scratch"
    with Forkserver([], environment, scratch) as forkserver:
        job = forkserver.start([str(script), *([] if end == "by itself" else ["stays"])], log)
        if end != "by itself":
            wait_until(partial(is_ready, log))
        if end == "stopped":
            wait_until(lambda: len(marked(str(tmp_path))) == 3)  # the server, the job and the orphan
            assert stop_process(job) == -signal.SIGKILL
        if end == "killed":
            os.kill(job.pid, signal.SIGKILL)
        assert job.wait(60) == (0 if end == "by itself" else -signal.SIGKILL)
        server = forkserver._process.pid
        assert set(marked(str(tmp_path))) <= {server, *children(server)}  # it has forked the process of the next job
        assert not list(scratch.rglob("file"))
    assert not scratch.exists()


def test_a_compiler_that_is_killed_leaves_nothing_that_is_cut_off(tmp_path, monkeypatch):
    (tmp_path / "job.py").write_text(COMPILES)
    monkeypatch.chdir(tmp_path)
    with Forkserver([], dict(os.environ), tmp_path / "scratch") as forkserver:
        assert forkserver.start([str(tmp_path / "job.py")], tmp_path / "log").wait(60) == -signal.SIGKILL
    assert [path.name for path in tmp_path.glob("*.so")] == ["whole.so"]


def test_what_torch_keeps_from_job_to_job_is_where_the_user_has_it(tmp_path, monkeypatch):
    """Its precompiled headers, below the folder of temporary files that it finds when it is imported."""
    (tmp_path / "at_import.py").write_text("import tempfile; folder = tempfile.gettempdir()")
    (tmp_path / "job.py").write_text("import at_import, tempfile; print(at_import.folder, tempfile.gettempdir())")
    monkeypatch.syspath_prepend(tmp_path)
    log, scratch = tmp_path / "log", tmp_path / "scratch"
    with Forkserver(["at_import"], os.environ | {"TMPDIR": str(tmp_path)}, scratch) as forkserver:
        assert forkserver.start([str(tmp_path / "job.py")], log).wait(60) == 0
    assert log.read_text().split() == [str(tmp_path), str(scratch / "job")]


def test_a_killed_sweep_takes_its_job_along_which_holds_the_lock_until_then(orphaning, tmp_path):
    script, environment = orphaning
    log, scratch, lock = (tmp_path / name for name in ("log", "scratch", "lock"))
    command = [sys.executable, "-c", SWEEP, *map(str, (script, log, scratch, lock))]
    sweep = subprocess.Popen(command, env=environment)
    wait_until(partial(is_ready, log), sweep)
    (server,) = children(sweep.pid)
    os.kill(server, signal.SIGSTOP)
    sweep.kill()
    sweep.wait()
    wait_until(lambda: len(marked(str(tmp_path))) == 3)
    with lock.open() as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(server, signal.SIGCONT)
        wait_until(lambda: not marked(str(tmp_path)), timeout_s=60)
        wait_until_gone(server)  # it closes the file only after its environment cannot be read any more
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not scratch.exists()


def test_a_killed_server_takes_its_job_along_and_is_started_again(orphaning, tmp_path):
    script, environment = orphaning
    log, scratch = tmp_path / "log", tmp_path / "scratch"
    with Forkserver(["json"], environment, scratch) as forkserver:
        job = forkserver.start([str(script), "stays"], log)
        with pytest.raises(subprocess.TimeoutExpired):
            job.wait(0.01)
        wait_until(partial(is_ready, log))
        forkserver._process.kill()
        assert stop_process(job) == -signal.SIGKILL
        wait_until_gone(job.pid)
        assert forkserver.start([str(script)], log).wait() == 0
    assert not scratch.exists()


def test_a_server_that_dies_as_it_imports_is_the_end_of_its_job_alone(tmp_path, monkeypatch):
    (tmp_path / "dies.py").write_text("import os, pathlib; pathlib.Path(__file__).write_text(''); os._exit(3)")
    (tmp_path / "job.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    log = tmp_path / "log"
    with Forkserver(["dies"], dict(os.environ), tmp_path / "scratch") as forkserver:
        assert stop_process(forkserver.start([str(tmp_path / "job.py")], log)) == 3
        assert log.read_text() == "what forks the jobs has ended with exit status 3\n"
        assert forkserver.start([str(tmp_path / "job.py")], log).wait(60) == 0


@pytest.mark.parametrize(
    ("env_set", "typed", "start"), [({}, None, "fork"), ({}, "subprocess", "subprocess"), ({"A": "1"}, None, None)]
)
def test_a_job_whose_imports_are_done_forks_its_compile_workers_too(env_set, typed, start, monkeypatch, tmp_path):
    monkeypatch.delenv(WORKER_START, raising=False)
    if typed is not None:
        monkeypatch.setenv(WORKER_START, typed)
    config = OmegaConf.create({"job": {"kind": "train"}, "hydra": {"job": {"env_set": env_set}}})
    sweep = Sweep("name", tmp_path, config, None, 1, (Slot(),))
    assert forkserver_of(sweep, Slot(), 0, lock=-1)._environment.get(WORKER_START) == start


def test_the_users_compile_cache_is_where_torch_has_it_by_default(monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert default_compile_cache() == default_cache_dir()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, 'an "odd" name')
    assert default_compile_cache() == default_cache_dir()


RANK = """import sys, time
from pathlib import Path
from trainkit import cli
def main():
    print("ready", flush=True)
    time.sleep(1000)
cli.entry(main, Path())
"""


def test_a_rank_does_not_outlive_what_started_it(tmp_path):
    starts = (
        f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {RANK!r}]).pid, flush=True); input()"
    )
    environment = os.environ | {"LOCAL_RANK": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", starts], env=environment, text=True, **pipes) as parent:
        rank = int(parent.stdout.readline())
        assert parent.stdout.readline() == "ready\n"
        assert is_running(rank)
        parent.kill()
    wait_until_gone(rank)
