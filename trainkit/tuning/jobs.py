"""The jobs of a race: each in a fresh process, as those of a sweep, with a row like all others."""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from omegaconf import DictConfig

from trainkit.interruption import hold_signals
from trainkit.results.ledger import LEDGER_FILE
from trainkit.results.row import Row
from trainkit.results.runs import read_rows
from trainkit.sweep.forkserver import Forkserver
from trainkit.sweep.job import Deadline, new_run_dir, run_job
from trainkit.sweep.plan import Job, Sweep
from trainkit.sweep.servers import num_servers_at_once, revive, start_servers
from trainkit.sweep.sweep import StopSignal, finished_row, handle_signals, locked
from trainkit.tuning.measuring import BUDGET_END, BUDGET_SHARE, JobRequest, JobResult
from trainkit.tuning.plan import RacePlan


class JobRunner:
    """Runs jobs while it is entered, and holds the lock of the race's folder. ConfigError if the race runs already.

    A server starts one job of each arm, so each repeat of an arm is from another server.
    """

    def __init__(self, plan: RacePlan, sweep: Sweep, load_config: Callable[[list[str]], DictConfig]):
        self._plan, self._sweep, self._load_config = plan, sweep, load_config
        self._resources = ExitStack()
        self._servers = ExitStack()
        self._started: dict[Forkserver, set[str]] = {}  # the arms whose jobs each server has started
        self._lock = 0
        self._earlier_rows: list[Row] = []
        self.stop = StopSignal()

    def __enter__(self) -> Self:
        self._lock = self._resources.enter_context(locked(self._sweep))
        self._resources.push(self._servers)
        if (self._sweep.folder / LEDGER_FILE).exists():  # else its rows are of another race, or of a sweep
            self._earlier_rows = read_rows(self._sweep.folder)
        self.stop = handle_signals()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.__exit__(kind, error, trace)

    def waits_for_imports(self, arm: str) -> bool:
        """Whether the next job of an arm waits for new servers: each server has started one of its jobs."""
        return all(arm in arms for arms in self._started.values())

    def measure(self, request: JobRequest) -> JobResult:
        """Run a job to its end. A start that was killed may have left its row: then the job does not run again. Raises
        KeyboardInterrupt if the user stops the job.

        The arm's share counts from the start of the job. The end of the budget counts from the request: the imports of
        a new server are part of the budget, and not of the job.
        """
        deadline = Deadline(request.budget_left_s, BUDGET_END)
        job = self._job(request)
        sweep = self._limited(request)
        finished = finished_row(self._earlier_rows, sweep, job)
        if finished is not None:
            return JobResult(finished, wall_s=0.0)
        requested_s = time.monotonic()
        server = self._server_for(request.name, deadline)
        started_s = time.monotonic()
        run_dir = new_run_dir(sweep.folder, job.label)
        row, is_interrupted = run_job(sweep, job, run_dir, server, deadline)
        if is_interrupted:
            raise KeyboardInterrupt
        return JobResult(row, time.monotonic() - started_s, imports_s=started_s - requested_s)

    def _job(self, request: JobRequest) -> Job:
        overrides = self._plan.job_overrides(request.overrides, request.repeat, request.check)
        with hold_signals():  # omegaconf turns a KeyboardInterrupt into errors of its own
            config = self._load_config(overrides)
        return Job(overrides, config, self._plan.nproc_per_node, request.name, request.repeat, "")

    def _limited(self, request: JobRequest) -> Sweep:
        """The sweep with the shorter of the user's time limit and the arm's share."""
        if self._sweep.timeout_s is not None and self._sweep.timeout_s <= request.timeout_s:
            return self._sweep
        return replace(self._sweep, timeout_s=request.timeout_s, timeout_source=BUDGET_SHARE)

    def _server_for(self, arm: str, deadline: Deadline) -> Forkserver | None:
        """A server that has started no job of the arm."""
        if sys.platform != "linux":  # a fork does not go well with the system's libraries
            return None
        if self.waits_for_imports(arm):
            self._start_servers(deadline)
        server = next(server for server, arms in self._started.items() if arm not in arms)
        self._started[server].add(arm)
        revive([server], deadline)
        return server

    def _start_servers(self, deadline: Deadline) -> None:
        """Start servers in place of those before."""
        self._servers.close()
        self._started = {}
        slot_numbers = [0] * num_servers_at_once()
        for server in self._servers.enter_context(start_servers(self._sweep, slot_numbers, self._lock, deadline)):
            self._started[server] = set()
