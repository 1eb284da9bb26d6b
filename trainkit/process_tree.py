"""A process and all that descends from it, as Linux's /proc shows them. Elsewhere nothing is found and nothing done."""

import atexit
import ctypes
import gc
import io
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.01
WRITERS = frozenset({io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom})  # of open()
COMPILER_OUTPUTS = (".gch", ".so")  # a compiler writes them in place, and a cache takes what is there for whole


@dataclass(frozen=True)
class Process:
    """A process, its parent's id, and the processor time of it and of its children that have ended, in clock ticks."""

    pid: int
    parent: int
    cpu_ticks: int


def adopt_orphans() -> None:
    """Make this process the new parent of each process below it whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def signal_at_end_of_parent(number: signal.Signals) -> None:
    """Have this process get a signal when the thread that started it ends, at once if its parent has ended by now. No
    child inherits this."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != _parent:
        os.kill(os.getpid(), number)


def exit_at_once() -> NoReturn:
    """End this process with status 0 without freeing its objects, which takes a third of the time of a small job.

    As at any other end, threads are joined, `atexit` functions run, and files that are still open are flushed.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _flush_files()
    os._exit(0)


def _flush_files() -> None:
    gc.unfreeze()  # those from before the imports are among the frozen objects
    for item in gc.get_objects():
        if type(item) not in WRITERS:
            continue
        try:
            if item.writable():
                item.flush()
        except ValueError:  # it is closed, or detached from its buffer
            continue
        except OSError as error:
            print(f"a file that was still open is not whole: {error}", file=sys.stderr)
    ctypes.CDLL(None).fflush(None)  # what C code has printed


def end_descendants() -> None:
    """Kill and reap all that this process, which adopts orphans, has started. Returns when nothing is left of it, and
    no library or precompiled header that it had not written to its end.

    A process that is in the kernel, in a driver for example, may take seconds to end.
    """
    with suppress(ChildProcessError):  # no child is left, and so no descendant
        while True:
            kill_descendants()
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
            time.sleep(POLL_S)


def kill_descendants() -> None:
    """Kill all that this process has started, and remove what it had not written to its end."""
    cut_off: set[Path] = set()
    for process in tree(os.getpid())[1:]:
        cut_off |= _compiled_files_written_by(process.pid)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    for path in cut_off:
        path.unlink(missing_ok=True)


def _compiled_files_written_by(pid: int) -> set[Path]:
    written, descriptors = set(), []
    with suppress(OSError):  # the process has just ended
        descriptors = os.listdir(f"/proc/{pid}/fd")
    for descriptor in descriptors:
        with suppress(OSError):  # the file has just been closed
            path = Path(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
            if path.suffix in COMPILER_OUTPUTS and _is_open_for_writing(pid, descriptor):
                written.add(path)
    return written


def _is_open_for_writing(pid: int, descriptor: str) -> bool:
    """By the flags in /proc/PID/fdinfo, see proc(5)."""
    _, _, flags = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().partition("flags:")
    return int(flags.split()[0], 8) & os.O_ACCMODE != os.O_RDONLY


def tree(pid: int) -> list[Process]:
    """A process and all below it, parents first; empty if it has ended."""
    running = running_processes()
    children: dict[int, list[Process]] = {}
    for process in running.values():
        children.setdefault(process.parent, []).append(process)
    processes = []
    if pid in running:
        processes.append(running[pid])
    for process in processes:  # which grows
        processes += children.get(process.pid, [])
    return processes


def is_running(pid: int) -> bool:
    """Whether a process of this machine has not ended; one that has, and that nobody has reaped, has. Elsewhere than on
    Linux that counts as running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with suppress(OSError):
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    return True


def process_age_s() -> float:
    """The time since this process was started; 0 elsewhere than on Linux."""
    with suppress(OSError):
        ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
        since_boot_s = float(Path("/proc/uptime").read_text().split()[0])
        return max(0.0, since_boot_s - ticks / os.sysconf("SC_CLK_TCK"))
    return 0.0


def running_processes() -> dict[int, Process]:
    """The processes of this machine, or of this container, by id."""
    processes = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            process = _parse(path.read_bytes())
            processes[process.pid] = process
    return processes


def _parse(stat: bytes) -> Process:
    """/proc/PID/stat, see proc(5). The name, in parentheses, may hold spaces and parentheses."""
    pid = int(stat.partition(b" ")[0])
    fields = stat.rpartition(b")")[2].split()
    return Process(pid, parent=int(fields[1]), cpu_ticks=sum(map(int, fields[11:15])))


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {value}): {os.strerror(error)}")


_parent = os.getppid()  # as this process begins: it may end before anyone asks for a signal at its end


def _note_parent() -> None:
    global _parent
    _parent = os.getppid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_parent)
