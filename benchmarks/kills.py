"""Ends sweeps of two ranks at random moments, and looks for whatever is left behind.

    python benchmarks/kills.py [--kills 40] [--seed 0] [--device cpu|cuda] [override ...]

A kill is a signal (SIGTERM, SIGKILL, SIGINT or SIGHUP) to the sweep, to torchrun or to a rank: while the job starts,
compiles, waits in a collective of a step, validates, or writes a checkpoint. When the sweep has ended there must be no
process, no temporary file and, on all GPUs of the machine, no more memory in use than before: nothing else may start
there meanwhile. Each run directory must hold a row that says what happened: which signal stopped the run, which rank
was lost, or that the sweep was interrupted. After SIGKILL of the sweep the row says `interrupted`, without a reason.

It prints a line for each kill, with the moment at which it came by the reports of the ranks, and at the end how many
came at each. It exits with status 1 if anything was left behind or a row is wrong.
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
from trainkit.results.files import read_row
from trainkit.results.ranks import RankReport, read_reports
from trainkit.results.row import Row

ROOT = Path(__file__).parent.parent
MARK = "TRAINKIT_KILLS"  # a variable in the environment of all processes of a sweep
RUN_DIRS, LOGS = "runs/sweeps/*/*", "runs/sweeps/*/*/output.log"
TARGETS = ("sweep", "torchrun", "rank 0", "rank 1")
SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)
STARTING, COMPILING, IN_STEP = "starting", "compiling", "in a step"
COLLECTIVE, VALIDATION, CHECKPOINT = "in a collective", "in validation", "in a checkpoint"
CHOSEN_MOMENTS = (STARTING, COMPILING, COLLECTIVE, VALIDATION, CHECKPOINT)
LONGEST_START_S, LONGEST_DELAY_S = 6.0, 2.0
LIMIT_S = 180  # for a sweep to start, and to end
POLL_S = 0.02
AGAIN_S = 30  # for a moment to come again
FRESH_S = 0.2  # of a report: it tells the moment
JOB = (
    "model=mini_transformer", "model.dim=128", "model.depth=1", "data=synthetic", "data.num_batches=20",
    "data.num_val_batches=60", "trainer.max_epochs=100000", "compile.cache=cold", "logger=none",
    "hydra.launcher.nproc_per_node=2",
)  # fmt: skip


@dataclass(frozen=True)
class Kill:
    """A signal to one of TARGETS at a moment, so long after that came first: at its next time."""

    target: str
    number: signal.Signals
    moment: str
    delay_s: float

    def __str__(self) -> str:
        return f"{self.number.name:7} to {self.target:8}"


@dataclass(frozen=True)
class Outcome:
    """The moment at which a kill came, what the rows say, and what is left behind or wrong in them."""

    moment: str
    rows: list[str]
    problems: list[str]


def random_kill(chance: random.Random) -> Kill:
    moment = chance.choice(CHOSEN_MOMENTS)
    longest_s = LONGEST_START_S if moment == STARTING else LONGEST_DELAY_S
    return Kill(chance.choice(TARGETS), chance.choice(SIGNALS), moment, chance.uniform(0, longest_s))


def outcome_of(kill: Kill, folder: Path, overrides: list[str]) -> Outcome:
    """Run a sweep in an empty folder, and end it by this kill."""
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
        moment = deliver(kill, sweep, folder)
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
    return Outcome(moment, [f"{row.status}: {row.error}" for row in rows_in(folder)], problems)


def temporary_files(folder: Path) -> list[str]:
    """The names in a temporary directory of what a run should have removed: all but the warm cache."""
    return [path.name for path in folder.iterdir() if not path.name.startswith("torchinductor_")]


def deliver(kill: Kill, sweep: subprocess.Popen[bytes], folder: Path) -> str:
    """Wait for the moment of the kill, and send its signal; a sweep that has ended before is left alone. Returns the
    moment at which it came."""
    wait_until(lambda: sweep.poll() is not None or find_target(kill.target, sweep.pid) is not None)
    wait_for_moment(kill.moment, sweep, folder, LIMIT_S)
    time.sleep(kill.delay_s)
    limit_s = 0 if kill.moment == STARTING else AGAIN_S
    moment = wait_for_moment(kill.moment, sweep, folder, limit_s)
    pid = find_target(kill.target, sweep.pid)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, kill.number)
    return moment


def wait_for_moment(wanted: str, sweep: subprocess.Popen[bytes], folder: Path, limit_s: float) -> str:
    """Wait until the ranks are at a moment. Returns the one at which they are, after `limit_s` another one."""
    deadline, moment = time.monotonic() + limit_s, find_moment(folder)
    while sweep.poll() is None and moment != wanted and (moment is None or time.monotonic() < deadline):
        time.sleep(POLL_S)
        moment = find_moment(folder)
    return moment or STARTING


def find_moment(folder: Path) -> str | None:
    """The moment at which the ranks are, by the newest of the reports that they write each second; None if that is not
    fresh. A checkpoint is written beside its place. In a step nothing but a collective lets a main thread sleep."""
    reports = read_reports_in(folder)
    if not reports:
        return STARTING
    newest = max(reports, key=lambda report: report.time)
    if any(folder.glob(f"{RUN_DIRS}/checkpoints/.*.tmp")):
        return CHECKPOINT
    if time.time() - newest.time > FRESH_S:
        return None
    if newest.compiling:
        return COMPILING
    if newest.place.startswith("validation"):
        return VALIDATION
    if not newest.place.startswith("step"):
        return STARTING
    return COLLECTIVE if is_asleep(newest.pid) else IN_STEP


def is_asleep(pid: int) -> bool:
    """Whether the main thread of a process waits, see proc(5)."""
    return _read(pid, "stat").rpartition(b")")[2].split()[:1] == [b"S"]


def read_reports_in(folder: Path) -> list[RankReport]:
    reports = []
    for run_dir in folder.glob(RUN_DIRS):
        reports += read_reports(run_dir)
    return reports


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


def rows_in(folder: Path) -> list[Row]:
    rows = [read_row(log.parent) for log in folder.glob(LOGS)]
    return [row for row in rows if row is not None]


def wrong_rows(folder: Path, kill: Kill) -> list[str]:
    """The run directories whose row is missing, or does not say what happened."""
    problems = []
    for log in folder.glob(LOGS):
        row = read_row(log.parent)
        if row is None:
            problems.append(f"no row in {log.parent.name}")
        elif not is_true(row, kill):
            problems.append(f"status {row.status}, error {row.error} in {log.parent.name}")
    return problems


def is_true(row: Row, kill: Kill) -> bool:
    """Whether a row names what happened: the signal or, of a process that was killed, the rank."""
    error = row.error or ""
    if kill.target == "sweep":
        reasons = ["the sweep was interrupted"]
        if kill.number is signal.SIGKILL:  # nobody is left to write one
            reasons.append("")
        return row.status == "interrupted" and error in reasons
    if kill.number is signal.SIGKILL:
        lost = "rank " if kill.target == "torchrun" else f"{kill.target}, "  # all ranks end with their torchrun
        is_named = error.startswith(lost) and "its process was lost" in error
        return row.status == "failed" and (is_named or kill.number.name in error)
    return row.status == "interrupted" and f"stopped by {kill.number.name}" in error


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
        time.sleep(POLL_S)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("overrides", nargs="*", metavar="override", help="as of train.py")
    arguments = parser.parse_intermixed_args()
    # Ignored, as under nohup or in the background of a script, they would be ignored by the sweeps too.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    accelerator = {"cpu": "cpu", "cuda": "gpu"}[arguments.device]
    chance = random.Random(arguments.seed)
    tally: dict[str, list[int]] = {}  # of each moment, the kills and those that left nothing behind
    for number in range(1, arguments.kills + 1):
        kill = random_kill(chance)
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            outcome = outcome_of(kill, Path(folder), [f"trainer.accelerator={accelerator}", *arguments.overrides])
        seconds = time.monotonic() - start
        counts = tally.setdefault(outcome.moment, [0, 0])
        counts[0] += 1
        counts[1] += not outcome.problems
        result = "; ".join(outcome.problems) or f"clean, {', '.join(outcome.rows) or 'no run'}"
        print(f"{number:3} {kill} {outcome.moment:15} {seconds:5.1f} s: {result}", flush=True)
    for moment, (num_kills, num_clean) in tally.items():
        print(f"{moment:15} {num_clean} of {num_kills} kills left nothing behind and a true row")
    num_clean = sum(counts[1] for counts in tally.values())
    print(f"{num_clean} of {arguments.kills} (seed {arguments.seed}, {arguments.device})")
    return int(num_clean < arguments.kills)


if __name__ == "__main__":
    sys.exit(main())
