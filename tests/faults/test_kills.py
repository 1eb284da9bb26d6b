"""Runs that a signal ends at a random moment leave a true row and nothing else, and resume to the same bits."""

import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.kills import SIGNALS, outcome_of, random_kill, temporary_files
from tests import forked
from tests.conftest import ROOT, parameters, same
from tests.faults.campaign import SEED, Outcomes, random_seed, tries_within
from tests.networks import network
from trainkit.compiler.caches import COLD_PREFIX
from trainkit.process_tree import running_processes, tree
from trainkit.results.files import RUN_LOCK, read_epochs, read_row
from trainkit.results.row import Row

NUM_EPOCHS = 8
LONGEST_START_S, LONGEST_EPOCH_S = 2.0, 0.1  # of the moments of kills
JOB = (
    network("Dropout"), "logger=none", "trainer.accelerator=cpu", "trainer.warmup_steps=20",
    f"trainer.max_epochs={NUM_EPOCHS}", "trainer.limit_train_batches=7", "trainer.limit_val_batches=2",
    "hydra.run.dir=run",
)  # fmt: skip
TIMEOUT_S = 120
TORCHRUN = "torchelastic_", "pytorch-errorfile"  # the files that it leaves
POLL_S = 0.002
GONE_S = 10.0  # for the processes of a run to end after it


@dataclass(frozen=True)
class Kill:
    """A signal, so long after the epoch of this number, or after the start of the process."""

    number: signal.Signals
    num_epochs: int
    delay_s: float


@dataclass(frozen=True)
class KilledRun:
    """A run, and the signals that end it, one for each start of it."""

    overrides: tuple[str, ...]
    num_ranks: int
    every_n_steps: int | None  # steps between checkpoints inside of an epoch
    kills: tuple[Kill, ...]
    kills_rank: bool = False  # a rank, not torchrun

    @property
    def words(self) -> tuple[str, ...]:
        every = "null" if self.every_n_steps is None else self.every_n_steps
        return *JOB, *self.overrides, f"checkpoint.every_n_train_steps={every}"


def random_run(chance: random.Random) -> KilledRun:
    compiler = chance.choice(["compile.mode=eager"] * 14 + ["compile.backend=aot_eager"] * 5 + ["compile.cache=cold"])
    num_ranks = chance.choice([1] * 11 + [2])
    num_workers = chance.choice([0, 1, 4])
    kills = []
    for _ in range(chance.choice([1, 1, 2])):
        num_epochs = chance.choice([0, *range(NUM_EPOCHS + 1)])
        longest_s = LONGEST_START_S if num_epochs == 0 else LONGEST_EPOCH_S
        kills.append(Kill(chance.choice(SIGNALS), num_epochs, chance.uniform(0, longest_s)))
    return KilledRun(
        (compiler, f"data.num_workers={num_workers}"),
        num_ranks,
        chance.choice([None, 1, 3, 5]),
        tuple(kills),
        kills_rank=num_ranks > 1 and chance.random() < 0.5,
    )


@dataclass(frozen=True)
class Attempt:
    """A process of a run that has ended."""

    status: int
    said: str
    is_killed: bool  # whether the signal was sent
    has_locked: bool  # whether the run took its directory's lock, after which it has a row


def train(killed: KilledRun, folder: Path, *words: str, kill: Kill | None = None) -> Attempt:
    """Start the run, and send the signal, unless it has ended."""
    over, sent = threading.Event(), threading.Event()
    lock_before = lock_time_ns(folder)

    def send(pid: int) -> None:
        if kill is None:
            return
        while len(list(read_epochs(folder / "run"))) < kill.num_epochs:
            if over.wait(POLL_S):
                return
        if over.wait(kill.delay_s):
            return
        target = pid
        if killed.kills_rank:
            ranks = [process.pid for process in tree(pid) if process.parent == pid]
            target = max(ranks, default=pid)
        with suppress(ProcessLookupError):
            os.kill(target, kill.number)
            sent.set()

    ended = forked.python(
        ROOT / "train.py", *killed.words, *words, cwd=folder, ranks=killed.num_ranks, timeout_s=TIMEOUT_S,
        on_start=forked.beside(send),
    )  # fmt: skip
    over.set()
    return Attempt(ended.returncode, ended.stderr, sent.is_set(), lock_time_ns(folder) != lock_before)


def lock_time_ns(folder: Path) -> int | None:
    """When a run last took the lock of its directory, which a run that is killed leaves there."""
    with suppress(FileNotFoundError):
        return (folder / "run" / RUN_LOCK).stat().st_mtime_ns
    return None


@dataclass(frozen=True)
class Result:
    """What came of a run: its losses by epoch, and the parameters."""

    losses: list[tuple[int, float | None, float | None]]
    parameters: dict[str, Any]

    def differences(self, run_dir: Path) -> list[str]:
        """What the run of this directory has otherwise than this one, to the bit."""
        other = result(run_dir)
        differences = []
        if not same(self.parameters, other.parameters):
            differences.append("other parameters than the uninterrupted run")
        if self.losses != other.losses:
            differences.append(f"other losses than the uninterrupted run: {other.losses}, not {self.losses}")
        return differences


def result(run_dir: Path) -> Result:
    losses = [(record.epoch, record.train_loss, record.val_loss) for record in read_epochs(run_dir)]
    return Result(losses, parameters(run_dir))


@cache
def uninterrupted(overrides: tuple[str, ...], num_ranks: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        killed = KilledRun(overrides, num_ranks, None, ())
        assert train(killed, Path(folder)).status == 0
        return result(Path(folder, "run"))


def try_killed_run(killed: KilledRun, folder: Path) -> tuple[str, list[str]]:
    """Kill the run and resume it. Returns the outcome, and what is wrong with what was left and what came of it."""
    expected = uninterrupted(killed.overrides, killed.num_ranks)
    outcome = "ended before"
    problems = []
    for kill in killed.kills:
        row_before = read_row(folder / "run")
        attempt = train(killed, folder, *resuming(folder), kill=kill)
        problems += left_problems(folder, kill.number)
        if not attempt.is_killed:
            break
        outcome = outcome_of_kill(folder)
        if finished(killed, attempt):
            break
        problems += attempt_problems(killed, kill.number, attempt, folder, row_before)
    row = read_row(folder / "run")
    if row is None or row.status != "ok":
        attempt = train(killed, folder, *resuming(folder))
        problems += left_problems(folder)
        if attempt.status != 0 and not finished(killed, attempt):
            problems.append(f"resumed with exit status {attempt.status}: {attempt.said}")
    return outcome, problems or expected.differences(folder / "run")


def resuming(folder: Path) -> list[str]:
    return ["ckpt_path=last"] if (folder / "run" / "checkpoints" / "last.ckpt").exists() else []


def finished(killed: KilledRun, attempt: Attempt) -> bool:
    """Whether the run was refused because the kill came between its last checkpoint and its last row."""
    refused = 2 if killed.num_ranks == 1 else 1  # torchrun's own, whatever a rank ends with
    return attempt.status == refused and "the checkpoint has finished" in attempt.said


def outcome_of_kill(folder: Path) -> str:
    """Where the kill met the run."""
    row = read_row(folder / "run")
    if row is None:
        return "before the row"
    if row.status == "ok":
        return "after the end"
    if not resuming(folder):
        return "before a checkpoint"
    checkpoint = torch.load(folder / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    return "between epochs" if checkpoint.get("end_of_epoch") else "inside of an epoch"


def left_problems(folder: Path, number: signal.Signals | None = None) -> list[str]:
    """Processes in the folder and temporary files that outlive a run, which a signal may have ended."""
    deadline = time.monotonic() + GONE_S
    while (pids := processes_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    problems = []
    if pids:
        problems.append(f"processes {pids}")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    expected = TORCHRUN
    if number is signal.SIGKILL:
        expected = (*TORCHRUN, COLD_PREFIX)  # a process that is killed cannot remove it
    names = temporary_files(folder / "tmp")
    left = [name for name in names if not name.startswith(expected)]
    if left:
        problems.append(f"temporary files {' '.join(left)}")
    for name in names:  # the next start is not to be blamed for them
        os.rename(folder / "tmp" / name, folder / name)
    return problems


def processes_in(folder: Path) -> list[int]:
    """The running processes whose working directory this is."""
    pids = []
    for pid in running_processes():
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/cwd") == str(folder):
                pids.append(pid)
    return pids


def attempt_problems(
    killed: KilledRun, number: signal.Signals, attempt: Attempt, folder: Path, row_before: Row | None
) -> list[str]:
    """What is wrong with the words, the exit status and the row of a run after a signal."""
    problems = []
    if "Traceback" in attempt.said and killed.num_ranks == 1:  # torchrun prints its own
        problems.append(f"traceback: {attempt.said}")
    row = read_row(folder / "run")
    if row is None:
        if attempt.has_locked and number is not signal.SIGKILL:
            problems.append(f"no row, exit status {attempt.status}")
        return problems
    if row.status == "ok":
        return problems
    if killed.num_ranks == 1 and attempt.status not in (-number, 128 + number):
        problems.append(f"exit status {attempt.status} after {number.name}")
    if row != row_before and not is_true(row, killed, number):  # else the run had not begun
        problems.append(f"row {row.status}: {row.error}, exit status {attempt.status}")
    return problems


def is_true(row: Row, killed: KilledRun, number: signal.Signals) -> bool:
    if killed.num_ranks > 1:
        return bool(row.error) or (number is signal.SIGKILL and row.status == "interrupted")
    if number is signal.SIGKILL:
        return (row.status, row.error) == ("interrupted", None)
    return row.status == "interrupted" and str(row.error).startswith(f"stopped by {number.name}")


def heed_sighup() -> None:
    """A process ignores SIGHUP under nohup, as would those that it starts."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_what_a_process_could_not_remove_is_left_by_that_one_alone(tmp_path):
    (tmp_path / "tmp" / f"{COLD_PREFIX}a").mkdir(parents=True)
    assert left_problems(tmp_path, signal.SIGKILL) == []
    assert left_problems(tmp_path, signal.SIGINT) == []
    (tmp_path / "tmp" / f"{COLD_PREFIX}b").mkdir()
    assert left_problems(tmp_path, signal.SIGINT) == [f"temporary files {COLD_PREFIX}b"]


def test_a_start_is_not_blamed_for_the_lock_of_an_earlier_one(tmp_path):
    killed = KilledRun(("compile.mode=eager", "data.num_workers=0"), 1, None, ())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / RUN_LOCK).touch()
    attempt = train(killed, tmp_path, "seed=none")  # ends before it takes the lock, as by a signal
    assert attempt.status == 2
    assert attempt_problems(killed, signal.SIGHUP, attempt, tmp_path, None) == []


def test_a_killed_run_resumes_to_the_same_bits(monkeypatch):
    heed_sighup()
    outcomes = Outcomes("kills and resumes")
    chance = random.Random(random_seed())
    for number in tries_within(limit_min=12, short=2, whole=80):
        killed = random_run(chance)
        if SEED is None:  # the others take seconds to start
            killed = replace(killed, overrides=("compile.mode=eager", f"data.num_workers={number % 2}"), num_ranks=1)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            (folder / "tmp").mkdir()
            monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
            try:
                outcomes.add(*try_killed_run(killed, folder), killed)
            except subprocess.TimeoutExpired as error:
                outcomes.add("hang", [f"ran for {TIMEOUT_S} s: {error.stderr!r}"], killed)
    outcomes.close()


def test_a_killed_sweep_leaves_nothing_behind():
    heed_sighup()
    outcomes = Outcomes("kills of sweeps")
    chance = random.Random(random_seed())
    for _ in tries_within(limit_min=6, short=0, whole=12):
        kill = random_kill(chance)
        with tempfile.TemporaryDirectory() as folder:
            outcome = outcome_of(kill, Path(folder), ["trainer.accelerator=cpu", "compile.backend=eager"])
        outcomes.add("clean", outcome.problems, kill)
    outcomes.close()
