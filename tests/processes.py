"""Processes that a test has started: which there are, and waiting for them."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path

from trainkit.process_tree import running_processes


def wait_until(condition, process: subprocess.Popen | None = None, timeout_s: float = 120) -> None:
    """Wait for something, where a process brings it about: it must not end before."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process is None or process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    with suppress(OSError):
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def children(pid: int) -> list[int]:
    return [process.pid for process in running_processes().values() if process.parent == pid]


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: not is_running(pid), timeout_s=60)
