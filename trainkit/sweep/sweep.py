"""Runs the jobs of a sweep, each in a fresh process, one after another, and compares them at the end.

A job needs a fresh process: compiled code, counters, caches and the allocator of one job would be part of the next
one's measurement.
"""

import fcntl
import os
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from omegaconf import DictConfig

from trainkit.analysis.comparison import compare
from trainkit.config.errors import ConfigError
from trainkit.config.network_file import network_digest
from trainkit.config.open_groups import named_nodes
from trainkit.diagnosis.findings import read_diagnoses
from trainkit.formatting import clean
from trainkit.interruption import SignalInterrupt, send_again
from trainkit.report import summary, terminal
from trainkit.results.requested import run_overrides
from trainkit.results.row import SCHEMA_VERSION, Row
from trainkit.results.runs import read_rows, read_runs
from trainkit.sweep.forkserver import Forkserver
from trainkit.sweep.job import new_run_dir, run_job, timeout_reason
from trainkit.sweep.plan import Job, Sweep, SweptSetting, list_jobs, shared_overrides
from trainkit.sweep.progress import JobClock, timed_line
from trainkit.sweep.servers import num_servers_at_once, revive, start_servers
from trainkit.sweep.side_by_side import run_side_by_side


@dataclass(frozen=True)
class SweepResult:
    """The rows of all jobs that ended, and the exit status if the user stopped the sweep before the last one."""

    rows: list[Row]
    stopped: int | None


def run_sweep(sweep: Sweep, settings: Sequence[SweptSetting], reports: bool = True) -> SweepResult:
    """Run every setting in every repeat, skip jobs that an earlier start has finished, and report the comparison, if
    these are all jobs of the sweep.

    SIGINT, SIGTERM and the end of the terminal stop the job under way, which writes its row. ConfigError if the sweep
    is running already.
    """
    sweep.folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    stopped = None
    with locked(sweep) as lock:
        stop = handle_signals()
        try:
            for row in _run_jobs(sweep, settings, lock):
                rows.append(row)
        except KeyboardInterrupt:
            stopped = stop.exit_status
        if reports:
            _report(sweep, settings[0].config)
    return SweepResult(rows, stopped)


@contextmanager
def locked(sweep: Sweep) -> Iterator[int]:
    """Hold the lock of the sweep's directory, and give its file's number. ConfigError if another process holds it.

    A process that inherits the file holds the lock too: a job that outlives its sweep is not measured beside another.
    """
    with (sweep.folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"sweep = {sweep.name}: is running already; wait for it, or use another name") from None
        yield lock.fileno()


@dataclass
class StopSignal:
    """The last signal that a sweep was stopped by."""

    number: int = signal.SIGINT

    @property
    def exit_status(self) -> int:
        return 128 + self.number

    def receive(self, number: int, frame: object) -> NoReturn:
        self.number = number
        if number == signal.SIGHUP:
            _print_into_nothing()
        raise SignalInterrupt(number)

    def on_unraisable(self, lost: "sys.UnraisableHookArgs") -> None:
        """Send a signal again that came in a callback of Python's own, as of a weak reference, whose exceptions Python
        only prints."""
        if issubclass(lost.exc_type, KeyboardInterrupt):
            send_again(self.number)
        else:
            sys.__unraisablehook__(lost)


def handle_signals() -> StopSignal:
    """Have SIGINT, SIGTERM and SIGHUP raise SignalInterrupt. Returns the signal, once one has come.

    A shell's background job ignores SIGINT, and a job inherits that: it could not be stopped in time.
    """
    stop = StopSignal()
    sys.unraisablehook = stop.on_unraisable
    signal.signal(signal.SIGINT, stop.receive)
    signal.signal(signal.SIGTERM, stop.receive)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, stop.receive)
    return stop


def _print_into_nothing() -> None:
    """The terminal has been closed: print into nothing, except into a file."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.dup2(nothing, descriptor)
    os.close(nothing)


@dataclass(frozen=True)
class Lap:
    """Jobs that run on servers of their own, each of which runs a setting once: those of one repeat, or of several that
    run side by side."""

    number: int
    jobs: list[Job]

    def slot_numbers(self, num_slots: int) -> list[int]:
        """The slots of the servers. Each lap begins with another slot: cards of one kind differ, and no setting may
        have the best in every repeat."""
        return [(self.number + offset) % num_slots for offset in range(min(num_slots, len(self.jobs)))]


def _run_jobs(sweep: Sweep, settings: Sequence[SweptSetting], lock: int) -> Iterator[Row]:
    """Run the whole list of settings again for each repeat, so that drift of the machine hits all settings alike.

    Several repeats run side by side if there are slots for all their jobs."""
    shared = shared_overrides(settings)
    jobs = list_jobs(settings, sweep.repeats)
    shown = []
    for override in settings[0].overrides:
        if override in shared and not override.startswith("sweep="):
            shown.append(override)
    print(f"sweep {sweep.name}: {len(jobs)} job(s), each with {' '.join(shown) or 'the defaults'}", flush=True)
    num_jobs = max(len(settings), len(sweep.slots))
    laps = [Lap(number, jobs[first : first + num_jobs]) for number, first in enumerate(range(0, len(jobs), num_jobs))]
    num_laps = max(1, num_servers_at_once() // len(sweep.slots))
    job_clock = JobClock()
    for first in range(0, len(laps), num_laps):
        yield from _run_laps(sweep, laps[first : first + num_laps], lock, job_clock)


def _run_laps(sweep: Sweep, laps: Sequence[Lap], lock: int, job_clock: JobClock) -> Iterator[Row]:
    """Run what is missing of several laps, whose servers start at once, and print the outcomes of all their jobs."""
    rows = read_rows(sweep.folder, _leave_out)
    finished: dict[str, Row] = {}  # by the number of the job
    unfinished, slot_numbers = [], []
    for lap in laps:
        waiting = []
        for job in lap.jobs:
            row = finished_row(rows, sweep, job)
            if row is None:
                waiting.append(job)
            else:
                finished[job.number] = row
        unfinished.append(Lap(lap.number, waiting))
        slot_numbers += unfinished[-1].slot_numbers(len(sweep.slots))
    with ExitStack() as stack:
        servers: Iterator[Forkserver] = iter(())
        if slot_numbers:
            with timed_line("importing"):
                servers = iter(stack.enter_context(start_servers(sweep, slot_numbers, lock)))
        for lap, unfinished_lap in zip(laps, unfinished, strict=True):
            for job in lap.jobs:
                if job.number in finished:
                    row = finished[job.number]
                    print(f"{_title(sweep, job)}: finished before, {summary.job_outcome(row)}", flush=True)
                    yield row
            num_servers = len(unfinished_lap.slot_numbers(len(sweep.slots)))
            yield from _run_lap(sweep, unfinished_lap.jobs, list(islice(servers, num_servers)), job_clock)


def _run_lap(sweep: Sweep, jobs: Sequence[Job], servers: Sequence[Forkserver], job_clock: JobClock) -> Iterator[Row]:
    """Run jobs on servers, if there are any: side by side on several."""
    revive(servers)
    if len(servers) > 1:
        for job, row in run_side_by_side(sweep, jobs, servers):
            print(f"{_title(sweep, job)}: {summary.job_outcome(row)}", flush=True)
            yield row
        return
    for job in jobs:
        yield _run_alone(sweep, job, servers[0] if servers else None, job_clock)


def _run_alone(sweep: Sweep, job: Job, forkserver: Forkserver | None, job_clock: JobClock) -> Row:
    title = _title(sweep, job)
    is_drawn_over = sys.stdout.isatty() and sys.stderr.isatty()
    if not is_drawn_over:
        print(title, end=": ", flush=True)
    run_dir = new_run_dir(sweep.folder, job.label)
    with job_clock.running(job, title):
        row, interrupted = run_job(sweep, job, run_dir, forkserver)
    if is_drawn_over:
        print(title, end=": ")
    print(summary.job_outcome(row), flush=True)
    if interrupted:
        raise KeyboardInterrupt
    return row


def _title(sweep: Sweep, job: Job) -> str:
    repeat = ""
    if sweep.repeats > 1:
        repeat = f" (repeat {job.repeat})"
    return f"{job.number} {job.label or 'job'}{repeat}"


def finished_row(rows: Sequence[Row], sweep: Sweep, job: Job) -> Row | None:
    """The row of a job that ended, well or not, in an earlier start of the sweep; None if it must run."""
    for row in rows:
        if _is_of_job(row, job, sweep) and _has_ended(row, sweep):
            return row
    return None


def _is_of_job(row: Row, job: Job, sweep: Sweep) -> bool:
    """A job of the other script, with another number of processes, beside another number of jobs, or with other code of
    the network is another job. A row of an older schema version would not be compared with the others."""
    if row.kind != sweep.config.job.kind or row.repeat != job.repeat or row.schema_version != SCHEMA_VERSION:
        return False
    if job.nproc_per_node not in (None, row.world_size) or row.num_parallel_jobs != len(sweep.slots):
        return False
    if row.overrides != run_overrides(job.overrides):
        return False
    return row.network_digest in (None, network_digest(job.config.model.get("_target_")))  # reads the file: last


def _has_ended(row: Row, sweep: Sweep) -> bool:
    """A job that reached another time limit than today's has not ended."""
    if row.status == "timeout":
        return row.error == timeout_reason(sweep)
    return row.status != "interrupted"


def _leave_out(complaint: str) -> None:
    print(f"{clean(complaint)}; it is left out", flush=True)


def _report(sweep: Sweep, config: DictConfig) -> None:
    """Print the comparison, write it as Markdown and HTML, and give it to W&B if the jobs' rows went."""
    from trainkit.report import page  # imports matplotlib, which takes a second

    runs = read_runs(sweep.folder, complain=_leave_out)
    epochs = {run.row.run_id: run.epochs for run in runs}
    comparison = compare(run.row for run in runs)
    terminal.print_comparison(comparison)
    diagnoses, complaints = read_diagnoses(sweep.folder)
    markdown, html = page.write_report(sweep.folder, comparison, epochs, diagnoses)
    for complaint in complaints:
        print(f"{complaint}; it is left out of the page", flush=True)
    print(f"rows and logs: {sweep.folder}; {markdown.name}, {html.name}", flush=True)
    for logger in named_nodes(config.logger).values():
        if str(logger.get("_target_")).endswith("WandbLogger"):
            from trainkit.report.wandb_comparison import publish

            publish(comparison, html.read_text(), sweep.name, sweep.folder, logger)
