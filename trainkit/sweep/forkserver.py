"""A process that starts the jobs of a sweep, and ends everything that they leave behind.

When a job has ended, however it ended, the server kills all its processes and removes their temporary files; then it
reports the job's end. It does so too when the sweep ends or is killed. A process that a job started cannot escape: if
its own parent ends, it becomes the server's child. A job is killed with its server.

The server can do the imports of a job, which are half of a small job. It forks itself for each job, and a job under
torchrun forks its ranks. A forked job is a process of its own in which only imports ran, like a job that is started
anew. A start leaves addresses of libraries and hash seeds to chance. They are the same for all jobs of one server, so a
sweep takes another server for each repeat. A source file that changes while a server lives is not imported again.

The sweep and the server talk over pipes. The server forks the process of the next job before anyone asks for it, and
writes that process's id. The forked process reads its command. When it has ended, the server writes its exit status.
"""

import importlib
import os
import runpy
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from trainkit import cli
from trainkit.process_tree import adopt_orphans, end_descendants, exit_at_once, signal_at_end_of_parent
from trainkit.sweep import torchrun

# A job finds modules where the sweep does.
START_SERVER = (
    f"import os, sys; sys.path[:] = sys.argv[1].split(os.pathsep); from {__name__} import serve; serve(*sys.argv[2:])"
)
END = signal.SIGQUIT  # ends the server and all below it: the sweep is gone


class Forkserver:
    """The sweep's side, a context manager: entering starts the server, leaving ends it and its job.

    `modules` are imported before the jobs start; without any they are started anew. Their temporary files are in a
    folder below `scratch`, which must not exist. The server and its jobs inherit the file `lock`, and are pinned to
    `cores`, if there are any.
    """

    def __init__(
        self,
        modules: Sequence[str],
        environment: dict[str, str],
        scratch: Path,
        lock: int | None = None,
        cores: Sequence[int] = (),
    ):
        arguments = [os.pathsep.join(sys.path), ",".join(modules), str(scratch), str(os.getpid()), *map(str, cores)]
        self._command = [sys.executable, "-c", START_SERVER, *arguments]
        self._environment = environment
        self._scratch = scratch
        self._inherited = [] if lock is None else [lock]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Forkserver":
        self._open()
        return self

    def restart_if_ended(self) -> None:
        """Start a server that was killed again, without waiting for its imports."""
        if self._process is not None and self._process.poll() is not None:
            self._close()
            self._open()

    def start(self, command: Sequence[str], log: Path, timeout_s: float | None = None) -> "ForkedJob":
        """Start `python COMMAND` in a session of its own, with its output in `log`. A server that was killed is started
        again. The job of one that dies as it imports has ended with its exit status.

        Raises TimeoutExpired if the server is still importing then.
        """
        self.restart_if_ended()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            job = ForkedJob(self, pid=self.read_number(timeout_s))
            self._process.stdin.write(os.fsencode("\0".join([str(log), *command, "\n"])))
        except (RuntimeError, BrokenPipeError) as error:
            log.write_text(f"{error}\n")
            return ForkedJob(self, self._process.pid, self._process.wait())
        return job

    def read_number(self, timeout_s: float | None = None) -> int:
        """Read the server's next number: a job's process id, and after it the job's exit status.

        Raises TimeoutExpired if it does not come in time, and RuntimeError if the server has ended.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not readable:
            raise subprocess.TimeoutExpired(self._command, timeout_s or 0)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"what forks the jobs has ended with exit status {self._process.wait()}")
        return int(line)

    def wait_for_imports(self, timeout_s: float | None = None) -> None:
        """Wait until the server has imported the modules, or has ended, for at most `timeout_s`."""
        select.select([self], [], [], timeout_s)

    def fileno(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def __exit__(self, *error: object) -> None:
        self._close()

    def _open(self) -> None:
        """Start the server, without waiting for its imports."""
        self._scratch.mkdir(mode=0o700)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=self._environment,
            start_new_session=True,
            pass_fds=self._inherited,
        )

    def _close(self) -> None:
        if self._process is not None:
            self._process.send_signal(END)
            with self._process:  # waits for it, and closes the pipes
                pass
            self._process = None
        shutil.rmtree(self._scratch, ignore_errors=True)  # if the server was killed


class ForkedJob:
    """As much of a subprocess.Popen as the sweep uses."""

    def __init__(self, server: Forkserver, pid: int, returncode: int | None = None):
        self._server = server
        self.pid = pid
        self.returncode = returncode

    def fileno(self) -> int:
        """The pipe that can be read when the job has ended, for `select`."""
        return self._server.fileno()

    def wait(self, timeout: float | None = None) -> int:
        """The job's exit status. A job whose server was killed is killed with it."""
        if self.returncode is None:
            try:
                self.returncode = self._server.read_number(timeout)
            except RuntimeError:  # nobody will say when the job has ended
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
                self.returncode = -signal.SIGKILL
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode


def serve(modules: str, scratch: str, sweep: str, *cores: str) -> None:
    """The server's side: import the `modules`, with commas between them, and run each job in a process that has them,
    until the process `sweep` ends.

    If an import fails, or has initialized CUDA, the job is started anew: it shows its own traceback.
    """
    server = os.getpid()

    def end(*_: object) -> NoReturn:
        if os.getpid() == server:
            end_descendants()
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(0)

    signal.signal(END, end)
    signal_at_end_of_parent(END)
    if os.getppid() != int(sweep):  # it has ended already
        end()
    adopt_orphans()
    if cores:  # before the imports: OpenMP starts as many threads
        os.sched_setaffinity(0, map(int, cores))
    # The sweep gets these signals too, and ends the job.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    imported = modules != "" and _import_for_jobs(modules.split(","))
    try:
        log, *command = _fork_next_job(Path(scratch, "job"))
    except BrokenPipeError:  # the sweep is ending
        end()
    _redirect(log)
    torch = sys.modules.get("torch")
    if not imported or (torch is not None and torch.cuda._is_in_bad_fork()):
        os.execv(sys.executable, [sys.executable, *command])
    try:
        if tuple(command[:2]) == torchrun.MODULE:
            torchrun.run_torchrun(command[2:])
        else:
            sys.argv = command
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end_of_script:
        if end_of_script.code not in (None, 0):
            raise
    exit_at_once()


def _import_for_jobs(modules: Sequence[str]) -> bool:
    """Import the modules without initializing CUDA. Returns whether that went well."""
    before = os.environ.get(torchrun.NVML_CHECK)
    os.environ[torchrun.NVML_CHECK] = "1"
    try:
        with cli.importing():
            for module in modules:
                importlib.import_module(module)
    except Exception:  # of any kind: the job imports it again, and shows it
        return False
    finally:
        if before is None:
            del os.environ[torchrun.NVML_CHECK]
        else:
            os.environ[torchrun.NVML_CHECK] = before
    return True


def _fork_next_job(scratch: Path) -> list[str]:
    """Fork a process for each job, with `scratch` for its temporary files, and end all that it leaves.

    Returns, in the forked process alone, the job's log and command.
    """
    server = os.getpid()
    while True:
        scratch.mkdir()
        pid = os.fork()
        if pid == 0:
            return _read_job(server, scratch)
        ended = 0
        while ended != pid:  # orphans of the job end here too
            ended, status = os.waitpid(-1, 0)
        end_descendants()
        shutil.rmtree(scratch, ignore_errors=True)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))


def _read_job(server: int, scratch: Path) -> list[str]:
    """Report the process id and wait for the log and the command. Ends the process if no job comes any more."""
    signal_at_end_of_parent(signal.SIGKILL)
    if os.getppid() != server:
        os._exit(0)
    signal.signal(END, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()
    # After the imports: torch forms the path of its precompiled headers, which last, when it is imported.
    os.environ["TMPDIR"] = str(scratch)
    tempfile.tempdir = None  # else the one that the imports took
    os.write(1, b"%d\n" % os.getpid())
    request = b""
    while not request.endswith(b"\0\n"):
        received = os.read(0, 65536)
        if not received:
            os._exit(0)
        request += received
    return os.fsdecode(request).split("\0")[:-1]


def _redirect(log: str) -> None:
    """Connect standard input to nothing, and output and errors to the log."""
    source = os.open(os.devnull, os.O_RDONLY)
    os.dup2(source, 0)
    os.close(source)
    output = os.open(log, os.O_WRONLY | os.O_TRUNC | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
