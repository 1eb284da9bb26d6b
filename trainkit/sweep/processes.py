"""The processes of a job: how they are started and ended."""

import getpass
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainkit.cli import FULL_ERROR
from trainkit.sweep.forkserver import ForkedJob

GRACE_S = 15  # for a job that was told to stop, to write its row
RANK_VARIABLES = re.compile(r"(RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|NODE_RANK|TORCHELASTIC_)")


def job_environment() -> dict[str, str]:
    """This process's environment without the variables that make a process one of several ranks.

    It names the user's own compile cache: that is in the folder for temporary files by default, and a job has another.
    It asks for tracebacks, as HYDRA_FULL_ERROR=1 does: a job prints into a file.
    """
    environment = {name: value for name, value in os.environ.items() if not RANK_VARIABLES.match(name)}
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", default_compile_cache())
    environment[FULL_ERROR] = "1"
    return environment


def default_compile_cache() -> str:
    """The folder of inductor's cache if no variable names another, as torch finds it; without importing torch."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may not know its user
        user = f"uid_{os.getuid()}"
    return os.path.join(tempfile.gettempdir(), "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))


def start_process(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `python COMMAND` with its output in `log`, in a session of its own: all its processes can be ended."""
    with log.open("w") as output:
        return subprocess.Popen(
            [sys.executable, *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=job_environment(),
            start_new_session=True,
        )


def stop_process(process: subprocess.Popen[bytes] | ForkedJob) -> int:
    """End a job and all it started: SIGINT, so that it writes its row, then SIGKILL. Returns its exit status."""
    (returncode,) = stop_processes([process])
    return returncode


def stop_processes(processes: Sequence[subprocess.Popen[bytes] | ForkedJob]) -> list[int]:
    """End several jobs at once. Returns their exit statuses."""
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        if process.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGINT)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):  # SIGKILL comes next
            process.wait(max(0.0, deadline - time.monotonic()))
        with suppress(ProcessLookupError):  # nothing of it is left
            os.killpg(process.pid, signal.SIGKILL)
    return [process.wait() for process in processes]
