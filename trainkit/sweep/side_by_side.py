"""Jobs side by side: one on each server, the next as soon as one has ended."""

import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainkit.results.row import Row
from trainkit.sweep.forkserver import ForkedJob, Forkserver
from trainkit.sweep.job import final_row, new_run_dir, start_job
from trainkit.sweep.plan import Job, Sweep
from trainkit.sweep.processes import stop_process, stop_processes


@dataclass(frozen=True)
class RunningJob:
    """A job under way."""

    job: Job
    run_dir: Path
    process: ForkedJob
    started_s: float

    def remaining_s(self, timeout_s: float) -> float:
        """Seconds until the time limit, or 0."""
        return max(0.0, self.started_s + timeout_s - time.monotonic())


def run_side_by_side(sweep: Sweep, jobs: Sequence[Job], forkservers: Sequence[Forkserver]) -> Iterator[tuple[Job, Row]]:
    """Run jobs to their ends, and give each with its row when it has ended.

    When this is left early, all that run are stopped at once, and their rows say `interrupted`.
    """
    waiting = iter(jobs)
    running: dict[Forkserver, RunningJob] = {}
    try:
        for forkserver, job in zip(forkservers, waiting, strict=False):
            running[forkserver] = _start(sweep, job, forkserver)
        while running:
            forkserver, stopped_by = _wait_for_first(running, sweep.timeout_s)
            ended = running.pop(forkserver)
            returncode = stop_process(ended.process)
            yield ended.job, final_row(sweep, ended.job, ended.run_dir, returncode, stopped_by)
            next_job = next(waiting, None)
            if next_job is not None:
                running[forkserver] = _start(sweep, next_job, forkserver)
    finally:
        returncodes = stop_processes([ended.process for ended in running.values()])
        for ended, returncode in zip(running.values(), returncodes, strict=True):
            final_row(sweep, ended.job, ended.run_dir, returncode, "interrupted")


def _start(sweep: Sweep, job: Job, forkserver: Forkserver) -> RunningJob:
    run_dir = new_run_dir(sweep.folder, job.label)
    process = start_job(sweep, job, run_dir, forkserver)
    assert isinstance(process, ForkedJob)
    return RunningJob(job, run_dir, process, time.monotonic())


def _wait_for_first(running: dict[Forkserver, RunningJob], timeout_s: float | None) -> tuple[Forkserver, str | None]:
    """The server whose job is the first to end, or to reach the time limit: then with `timeout`."""
    while True:
        wait_s = None
        if timeout_s is not None:
            wait_s = min(job.remaining_s(timeout_s) for job in running.values())
        select.select([job.process for job in running.values()], [], [], wait_s)
        for forkserver, job in running.items():
            if job.process.poll() is not None:
                return forkserver, None
            if timeout_s is not None and job.remaining_s(timeout_s) == 0:
                return forkserver, "timeout"
