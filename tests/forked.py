"""`python SCRIPT words...` in a process forked from one with all imports, which are most of a short run.

So are the servers of a sweep, which import for its jobs: its process forks some before its script begins.
"""

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from trainkit import cli
from trainkit.process_tree import signal_at_end_of_parent
from trainkit.sweep import forkserver
from trainkit.sweep.torchrun import NVML_CHECK, ONE_HOST, run_torchrun

ROOT = Path(__file__).parent.parent
IMPORTED = (
    "trainkit.interruption",  # else a signal may come while train.py imports it, before it can heed one
    "trainkit.training.run",
    "trainkit.inference.run",
    "trainkit.diagnosis.diagnose",
    "trainkit.report.page",
    "trainkit.report.studies",
    "sklearn.datasets",
)
TIMEOUT_S = 300
NUM_SERVERS = 6  # a sweep that needs more starts them itself


def python(
    script: Path,
    *words: str | Path,
    cwd: Path,
    path: str = "",
    ranks: int = 1,
    max_restarts: int = 0,
    timeout_s: float = TIMEOUT_S,
    on_start: Callable[[int], None] = lambda pid: None,
) -> subprocess.CompletedProcess[str]:
    """Run it to its end. `path` is where it finds modules beside those that the tests find. More than one of `ranks`
    are forked by torchrun's agent, up to `max_restarts` times again. `on_start` is called with the first process."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    argv = [str(script), *map(str, words)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    if path:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), path]))
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("stdout", "stderr")]
        job = {"argv": argv, "cwd": str(cwd), "env": env, "said": list(map(str, said))}
        job |= {"ranks": ranks, "max_restarts": max_restarts}
        server.stdin.write(json.dumps(job).encode() + b"\n")
        try:
            on_start(_answer(server, TIMEOUT_S))
            status = _answer(server, timeout_s)
        except TimeoutError:
            raise subprocess.TimeoutExpired(argv, timeout_s, *(file.read_bytes() for file in said)) from None
        return subprocess.CompletedProcess(argv, status, *(file.read_text(encoding="utf-8") for file in said))


def beside(act: Callable[[int], None]) -> Callable[[int], None]:
    """For `on_start`: acts on the process while `python` waits for its end."""

    def start(pid: int) -> None:
        threading.Thread(target=act, args=[pid], daemon=True).start()

    return start


def _answer(server: subprocess.Popen[bytes], timeout_s: float) -> int:
    """The server's next line. Raises TimeoutError."""
    assert server.stdout is not None
    answer = b""
    is_in_time = bool(select.select([server.stdout], [], [], timeout_s)[0])
    if is_in_time:
        answer = server.stdout.readline()
    if not answer:
        _end(server)
    if not is_in_time:
        raise TimeoutError
    if not answer:
        raise RuntimeError(f"what forks the tests' runs has ended with exit status {server.returncode}")
    return int(answer)


def twice(program: str, folder: Path) -> list[str]:
    """What two processes print that run the program in the folder; `together()` waits in each for the other."""
    script = folder / "program.py"
    script.write_text(f"from {__name__} import together\n{program}")
    done = python(script, cwd=folder, ranks=2)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def together() -> None:
    Path(f"ready{os.environ['RANK']}").touch()
    while not (Path("ready0").exists() and Path("ready1").exists()):
        time.sleep(0.001)


@cache
def _server() -> subprocess.Popen[bytes]:
    begin = f"import sys; sys.path[0] = {str(ROOT)!r}; from {__name__} import serve; serve()"
    server = subprocess.Popen(
        [sys.executable, "-c", begin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        env=os.environ | {"OMP_NUM_THREADS": "1", NVML_CHECK: "1"}, start_new_session=True,
    )  # fmt: skip
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[bytes]) -> None:
    """End it, and with it the job that it runs."""
    _server.cache_clear()
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def serve() -> None:
    """The server's side, until nobody asks any more."""
    with cli.importing():
        for name in IMPORTED:
            importlib.import_module(name)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until a job is ready for it
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            _run(**json.loads(line))
            return
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(argv: list[str], cwd: str, env: dict[str, str], said: list[str], ranks: int, max_restarts: int) -> None:
    _take_environment(env)
    os.chdir(cwd)
    for descriptor, path in enumerate([os.devnull, *said]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    own = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.path[:] = [str(Path(argv[0]).parent), *own, *sys.path[1:]]
    sys.argv = argv
    if ranks == 1:
        if "-m" in argv:
            _fork_servers()
        _run_script(argv[0])
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    run_torchrun([*ONE_HOST, f"--nproc-per-node={ranks}", f"--max-restarts={max_restarts}", *argv])


def _take_environment(env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # that of the environment before


def _run_script(path: str) -> None:
    """Run it. SIGINT ends the process without a word until the script handles it: no script can in its first lines."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        runpy.run_path(path, run_name="__main__")
    except KeyboardInterrupt:
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            raise
        os._exit(128 + signal.SIGINT)


class ForkedServer(subprocess.Popen[bytes]):
    """A process that was forked before, and becomes the server of a sweep when it is told to."""

    def __init__(self) -> None:
        self._control, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self._control.close()
            _serve_sweep(told)
        told.close()
        self.args, self.returncode, self.stderr = (), None, None
        self._child_created, self._waitpid_lock, self._sigint_wait_secs = True, threading.Lock(), 0.25

    def begin(self, arguments: list[str], environment: dict[str, str], inherited: list[int]) -> None:
        its_stdin, own_stdin = os.pipe()
        own_stdout, its_stdout = os.pipe()
        order = json.dumps({"arguments": arguments, "environment": environment})
        socket.send_fds(self._control, [order.encode()], [its_stdin, its_stdout, *inherited])
        self._control.close()
        os.close(its_stdin)
        os.close(its_stdout)
        self.stdin, self.stdout = os.fdopen(own_stdin, "wb", 0), os.fdopen(own_stdout, "rb", 0)


def _fork_servers() -> None:
    """Let the first servers of the sweep be processes that are forked now."""
    servers = [ForkedServer() for _ in range(NUM_SERVERS)]
    start = forkserver.Forkserver._open

    def open_forked(self: forkserver.Forkserver) -> None:
        if not servers:
            start(self)
            return
        self._scratch.mkdir(mode=0o700)
        self._process = servers.pop()
        self._process.begin(self._command[3:], self._environment, self._inherited)

    forkserver.Forkserver._open = open_forked


def _serve_sweep(control: socket.socket) -> NoReturn:
    """Wait for the arguments of a server, and end as one of its jobs, or with the sweep."""
    signal_at_end_of_parent(signal.SIGKILL)
    order, descriptors, *_ = socket.recv_fds(control, 2**20, 8)
    if not order:  # the sweep has ended
        os._exit(0)
    control.close()
    told, (stdin, stdout, *_) = json.loads(order), descriptors
    os.setsid()
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    _take_environment(told["environment"])
    path, *arguments = told["arguments"]
    sys.path[:] = path.split(os.pathsep)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    forkserver.serve(*arguments)
    sys.exit()
