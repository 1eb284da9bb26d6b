"""Ends sweeps of two ranks at random moments, and looks for whatever is left behind.

    python benchmarks/kills.py [--kills 40] [--seed 0] [--device cpu|cuda] [override ...]

A kill is a signal (SIGTERM, SIGKILL, SIGINT or SIGHUP) to the sweep, to torchrun or to a rank: while the job starts and
compiles, or between its epochs, each of which trains, validates and writes a checkpoint. When the sweep has ended there
must be no process, no temporary file and, on all GPUs of the machine, no more memory in use than before: nothing else
may start there meanwhile. Each run directory must hold a row that says why its run did not end `ok`; after SIGKILL of
the sweep the row says `interrupted`, without a reason.

It prints a line for each kill, and exits with status 1 if anything was left behind.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pynvml

from trainkit.process_tree import running_processes, tree
from trainkit.results.columns import GIB
from trainkit.results.files import EPOCHS_FILE, read_row
from trainkit.results.row import Row

ROOT = Path(__file__).parent.parent
MARK = "TRAINKIT_KILLS"  # a variable in the environment of all processes of a sweep
TARGETS = ("sweep", "torchrun", "rank 0", "rank 1")
SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)
LONGEST_START_S, LONGEST_EPOCH_S = 6.0, 2.0
LIMIT_S = 90  # for a sweep to start, and to end
JOB = (
    "model=mini_transformer", "model.dim=32", "model.depth=1", "data=synthetic", "data.num_batches=20",
    "trainer.max_epochs=100000", "compile.cache=cold", "logger=none", "hydra.launcher.nproc_per_node=2",
)  # fmt: skip


@dataclass(frozen=True)
class Kill:
    """A signal to one of TARGETS, so long after it started, or after the first epoch."""

    target: str
    number: signal.Signals
    in_training: bool
    delay_s: float

    def __str__(self) -> str:
        moment = "first epoch" if self.in_training else "start"
        return f"{self.number.name:7} to {self.target:8} {self.delay_s:3.1f} s after its {moment:11}"


def random_kill(chance: random.Random) -> Kill:
    in_training = chance.random() < 0.6
    longest_s = LONGEST_EPOCH_S if in_training else LONGEST_START_S
    return Kill(chance.choice(TARGETS), chance.choice(SIGNALS), in_training, chance.uniform(0, longest_s))


def problems_after(kill: Kill, folder: Path, overrides: list[str]) -> list[str]:
    """Run a sweep in an empty folder, end it by this kill, and say what is left behind, or wrong in its rows."""
    temporary, mark = folder / "tmp", str(folder)
    temporary.mkdir()
    memory_before = gpu_memory_bytes()
    with (folder / "output.txt").open("w") as output:
        sweep = subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), "-m", *JOB, *overrides],
            cwd=folder, stdout=output, stderr=output, start_new_session=True,
            env=os.environ | {MARK: mark, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    try:
        deliver(kill, sweep, folder)
        wait_until(lambda: sweep.poll() is not None)
        is_gone = wait_until(lambda: not marked(mark))
        problems = wrong_rows(folder, kill)
        if not is_gone:
            problems.append(f"processes {marked(mark)}")
        left = temporary_files(temporary)
        if left:
            problems.append(f"temporary files {' '.join(left)}")
        if gpu_memory_bytes() > memory_before + 0.1 * GIB:
            problems.append("GPU memory")
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        sweep.wait()
    return problems


def temporary_files(folder: Path) -> list[str]:
    """The names in a temporary directory of what a run should have removed: all but the warm cache."""
    return [path.name for path in folder.iterdir() if not path.name.startswith("torchinductor_")]


def deliver(kill: Kill, sweep: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait for the moment of the kill, and send its signal; a sweep that has ended before is left alone."""
    if kill.in_training:
        wait_until(lambda: sweep.poll() is not None or any(folder.rglob(EPOCHS_FILE)))
    wait_until(lambda: sweep.poll() is not None or find_target(kill.target, sweep.pid) is not None)
    time.sleep(kill.delay_s)
    pid = find_target(kill.target, sweep.pid)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, kill.number)


def find_target(target: str, sweep: int) -> int | None:
    """The process to kill, if it has been started. The sweep's server forks a job's torchrun, which forks its ranks."""
    if target == "sweep":
        return sweep
    processes = tree(sweep)
    server = next((process.pid for process in processes if process.parent == sweep), None)
    for torchrun in processes:
        ranks = sorted(process.pid for process in processes if process.parent == torchrun.pid)
        if torchrun.parent != server or not ranks:  # the fork that waits for the next job has none
            continue
        if target == "torchrun":
            return torchrun.pid
        index = int(target.removeprefix("rank "))
        return ranks[index] if index < len(ranks) else None
    return None


def wrong_rows(folder: Path, kill: Kill) -> list[str]:
    """The run directories whose row is missing, or does not say that and why the run did not end well."""
    problems = []
    for log in folder.rglob("output.log"):
        row = read_row(log.parent)
        if row is None:
            problems.append(f"no row in {log.parent.name}")
        elif not is_true(row, kill):
            problems.append(f"status {row.status}, error {row.error} in {log.parent.name}")
    return problems


def is_true(row: Row, kill: Kill) -> bool:
    if kill.target != "sweep":
        return row.status != "ok" and bool(row.error)
    return row.status == "interrupted" and (bool(row.error) or kill.number is signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """The processes that were started with this mark in their environment, and have not ended."""
    variable = f"{MARK}={mark}".encode()
    return [pid for pid in running_processes() if variable in _read(pid, "environ").split(b"\0")]


def _read(pid: int, name: str) -> bytes:
    """A file of /proc; empty for a process that has ended, or is another user's."""
    with suppress(OSError):
        return Path("/proc", str(pid), name).read_bytes()
    return b""


def gpu_memory_bytes() -> int:
    """Memory in use on all GPUs of the machine; 0 without any."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return sum(pynvml.nvmlDeviceGetMemoryInfo(handle).used for handle in handles)


def wait_until(condition: Callable[[], bool]) -> bool:
    """Wait for a condition. Returns False if it does not come true in time."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("overrides", nargs="*", metavar="override", help="as of train.py")
    arguments = parser.parse_intermixed_args()
    accelerator = {"cpu": "cpu", "cuda": "gpu"}[arguments.device]
    chance = random.Random(arguments.seed)
    num_clean = 0
    for number in range(1, arguments.kills + 1):
        kill = random_kill(chance)
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            problems = problems_after(kill, Path(folder), [f"trainer.accelerator={accelerator}", *arguments.overrides])
        num_clean += not problems
        print(f"{number:3} {kill} {time.monotonic() - start:5.1f} s: {'; '.join(problems) or 'clean'}", flush=True)
    print(f"{num_clean} of {arguments.kills} kills left nothing behind (seed {arguments.seed}, {arguments.device})")
    return int(num_clean < arguments.kills)


if __name__ == "__main__":
    sys.exit(main())
