"""A process that has imported what a job imports, and forks itself for each: imports are half of a small job.

A job so begun is a process of its own in which nothing ran but imports, as in one that was started anew. What a start
leaves to chance (where libraries lie in memory, how strings hash) is alike for all jobs of a server, so a sweep takes
another for each repeat. What was imported stays as it is when its source changes meanwhile.
"""

import importlib
import os
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainkit import cli

# A job finds modules where the sweep's script does, which `-m` would change.
BEGIN = f"import sys; sys.path[0] = sys.argv[2]; from {__name__} import serve; serve(sys.argv[1])"
NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"  # what only asks for CUDA devices does not initialize CUDA, which forbids a fork


class Forkserver:
    """The launcher's side, a context. The server is there from the first job on; its end ends no job."""

    def __init__(self, module: str, environment: dict[str, str]):
        self._command, self._environment = [sys.executable, "-c", BEGIN, module, sys.path[0]], environment
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Forkserver":
        return self

    def start(self, command: Sequence[str], log: Path) -> "ForkedJob":
        """`python COMMAND`, in a session of its own, with all that it says in `log`."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=self._environment,
                start_new_session=True,
            )  # fmt: skip
        job = ForkedJob(self, self.answer())
        assert self._process.stdin is not None
        self._process.stdin.write(os.fsencode("\0".join([str(log), *command, "\n"])))
        return job

    def answer(self, timeout_s: float | None = None) -> int:
        """A job's process id, and then its exit status. Raises TimeoutExpired where it does not come in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired(self._command, timeout_s or 0)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"what forks the jobs has ended with exit status {self._process.wait()}")
        return int(answer)

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.kill()
            with self._process:  # closes the pipes, which ends the process that was forked for the next job
                pass


class ForkedJob:
    """As much of a subprocess.Popen as the launcher uses."""

    def __init__(self, server: Forkserver, pid: int):
        self._server, self.pid = server, pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            try:
                self.returncode = self._server.answer(timeout)
            except RuntimeError:  # nobody will say when the job has ended
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
                raise
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode


def serve(module: str) -> None:
    """The server's side: import `module`, and run what is asked for in processes that have it."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the launcher gets them too, and ends the job
        signal.signal(number, signal.SIG_IGN)
    asked = os.environ.get(NVML)
    os.environ[NVML] = "1"
    try:
        with cli.importing():
            importlib.import_module(module)
        failed = False
    except Exception:  # the job says it
        failed = True
    if asked is None:
        del os.environ[NVML]
    else:
        os.environ[NVML] = asked
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ends the server when the sweep was killed
    log, *command = next_job()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for descriptor, name, how in ((0, os.devnull, os.O_RDONLY), (1, log, os.O_WRONLY | os.O_TRUNC | os.O_CREAT)):
        opened = os.open(name, how)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    torch = sys.modules.get("torch")
    if failed or (torch is not None and torch.cuda._is_in_bad_fork()):
        os.execv(sys.executable, [sys.executable, *command])
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")


def next_job() -> list[str]:
    """The log and the command of the job that this process was forked for; in the server itself it does not return."""
    while True:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            os.write(1, b"%d\n" % os.getpid())
            words = b""
            while not words.endswith(b"\0\n"):
                words += (read := os.read(0, 65536))
                if not read:  # the sweep has no more jobs
                    os._exit(0)
            return os.fsdecode(words).split("\0")[:-1]
        _, status = os.waitpid(pid, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))
