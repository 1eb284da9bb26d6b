"""One job of a sweep: a script that runs in a process tree of its own, and the row that it leaves."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from trainkit.config.schema import RunConfig
from trainkit.results.files import read_row, write_row
from trainkit.results.ranks import first_cause, read_reports
from trainkit.results.requested import requested_fields
from trainkit.results.row import Row
from trainkit.sweep import torchrun
from trainkit.sweep.forkserver import ForkedJob, Forkserver
from trainkit.sweep.plan import Job, Sweep
from trainkit.sweep.processes import start_process, stop_process

SWEEP_OVERRIDES = re.compile(r"hydra[./](launcher|sweeper|sweep|mode|run)\b")
CLOCK_S = 0.01  # a wait may end this much early
COMPLAINT = re.compile(r"[\w.]+ = .+: ")  # how a line of a ConfigError begins


@dataclass(frozen=True)
class Deadline:
    """A time limit that counts from when this is made, and the setting that it comes from."""

    limit_s: float
    source: str
    begin_s: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        return max(0.0, self.begin_s + self.limit_s - time.monotonic())


def run_job(
    sweep: Sweep, job: Job, run_dir: Path, forkserver: Forkserver | None, deadline: Deadline | None = None
) -> tuple[Row, bool]:
    """Run a job to its end. Returns its row, and whether the user stopped it.

    The sweep's time limit counts from the start of the job, after the server's imports. The deadline holds for these
    too.
    """
    process: subprocess.Popen[bytes] | ForkedJob | None = None
    returncode = 0
    stopped_by: str | None = None  # the status of a row that was stopped from here
    try:
        process = start_job(sweep, job, run_dir, forkserver, _least_s(None, deadline))
        process.wait(_least_s(sweep.timeout_s, deadline))
    except subprocess.TimeoutExpired:
        stopped_by = "timeout"
        if deadline is not None and deadline.left_s < CLOCK_S:
            sweep = replace(sweep, timeout_s=deadline.limit_s, timeout_source=deadline.source)
    except KeyboardInterrupt:
        stopped_by = "interrupted"
    finally:
        if process is not None:
            returncode = stop_process(process)
    return final_row(sweep, job, run_dir, returncode, stopped_by), stopped_by == "interrupted"


def _least_s(timeout_s: float | None, deadline: Deadline | None) -> float | None:
    """Seconds until a time limit that begins now, or until a deadline if that is earlier; None without either."""
    limits = [] if timeout_s is None else [timeout_s]
    if deadline is not None:
        limits.append(deadline.left_s)
    return min(limits, default=None)


def start_job(
    sweep: Sweep, job: Job, run_dir: Path, forkserver: Forkserver | None, timeout_s: float | None = None
) -> subprocess.Popen[bytes] | ForkedJob:
    """Start a job, its output in `run_dir/output.log`. Raises TimeoutExpired if it has not begun in time."""
    write_row(run_dir, row_of_request(sweep, job, run_dir))  # all there is of a job whose sweep is killed early
    command, log = _command(sweep, job, run_dir), run_dir / "output.log"
    if forkserver is None:
        return start_process(command, log)
    return forkserver.start(command, log, timeout_s)


def final_row(sweep: Sweep, job: Job, run_dir: Path, returncode: int, stopped_by: str | None) -> Row:
    """Write and return the row of a job that has ended; `stopped_by` is the status if it was stopped from here."""
    row = read_row(run_dir) or row_of_request(sweep, job, run_dir)
    if row.device_name is None and job.nproc_per_node is not None:  # it ended before it knew its own number
        row = replace(row, world_size=job.nproc_per_node)
    if stopped_by == "timeout" and row.status != "ok":
        row = replace(row, status="timeout", error=timeout_reason(sweep))
    elif stopped_by == "interrupted" and row.status != "ok":
        row = replace(row, status="interrupted", error="the sweep was interrupted")
    elif row.status == "interrupted" and row.error is None:
        reason = _cause_of_death(job, returncode, run_dir)
        status = "interrupted" if reason.startswith("stopped by ") else "failed"
        row = replace(row, status=status, error=reason)
    write_row(run_dir, row)
    return row


def timeout_reason(sweep: Sweep) -> str:
    return f"stopped after {round(sweep.timeout_s or 0, 1):g} s ({sweep.timeout_source})"


def new_run_dir(folder: Path, label: str) -> Path:
    """Make a directory for a job: the next free number, and the values in its label as far as they name files."""
    numbers = [-1]
    for path in folder.iterdir():
        if match := re.match(r"(\d+)-", path.name):
            numbers.append(int(match[1]))
    values = [override.partition("=")[2] for override in label.split(" ") if "=" in override]
    name = re.sub(r"[^A-Za-z0-9.+-]+", "_", "-".join(values))[:80] or "job"
    path = folder / f"{max(numbers) + 1:03d}-{name}"
    path.mkdir()
    return path


def _command(sweep: Sweep, job: Job, run_dir: Path) -> list[str]:
    """The arguments of the Python interpreter that runs the job."""
    command = []
    if job.nproc_per_node is not None:
        command += [*torchrun.MODULE, *torchrun.ONE_HOST, f"--nproc-per-node={job.nproc_per_node}"]
        if job.nproc_per_node > 1:
            command.append("--virtual-local-rank")  # each rank sees its own GPU alone: one cache entry for all
    hydra = sweep.config.hydra
    command += [os.path.abspath(sys.argv[0]), f"--config-name={hydra.job.config_name}"]
    for source in hydra.runtime.config_sources:
        if source.provider == "command-line":
            command.append(f"--config-dir={source.path.removeprefix('file://')}")
    command += job.overrides
    for override in hydra.overrides.hydra:
        if not SWEEP_OVERRIDES.match(override):
            command.append(override)
    command += [f"sweep={sweep.name}", f"repeat={job.repeat}", f"parallel_jobs={len(sweep.slots)}"]
    command += ["hydra.mode=RUN", f"hydra.run.dir='{run_dir}'"]
    return command


def row_of_request(sweep: Sweep, job: Job, run_dir: Path) -> Row:
    """The row of a job that has not started. It has the requested fields alone."""
    config = job.config
    try:
        groups: dict[str, Any] = {}
        for name in ("compile", "amp", "ddp", "trainer", "callbacks", "forward"):
            groups[name] = OmegaConf.to_object(config[name])
        groups["data"] = OmegaConf.to_object(OmegaConf.masked_copy(config.data, ["batch_size", "batch_sizes"]))
        request = RunConfig(**groups, seed=config.seed)
    except OmegaConfBaseException:
        request = RunConfig()
    request.model = {"_target_": config.model.get("_target_")}
    request.job.kind = config.job.kind
    request.job.model = config.job.model
    request.job.data = config.hydra.runtime.choices.data
    request.job.objective = config.hydra.runtime.choices.objective
    request.job.run_dir = str(run_dir)
    request.job.overrides = job.overrides
    request.sweep = sweep.name
    request.parallel_jobs = len(sweep.slots)
    request.repeat = job.repeat
    return Row(status="interrupted", **requested_fields(request))


def _cause_of_death(job: Job, returncode: int, run_dir: Path) -> str:
    """Why a job ended that could not say so: what its ranks reported, the signal that killed it, its complaint, or its
    last line."""
    reports = read_reports(run_dir)
    was_killed = returncode < 0  # then its ranks ended with it, or lost their connection to it, and are no cause
    if was_killed:
        reports = [report for report in reports if not report.follows]
    cause = first_cause(reports, is_gone=lambda report: not was_killed)
    if cause is not None:
        return cause.reason
    if was_killed:
        subject = "" if job.nproc_per_node is None else "torchrun was "
        return f"{subject}killed by {signal.Signals(-returncode).name}"
    lines = []
    for line in (run_dir / "output.log").read_text(errors="replace").splitlines():
        if COMPLAINT.match(line.strip()):
            return line.strip()
        if line.strip():
            lines.append(line.strip())
    if not lines:
        return f"exit status {returncode} without a word"
    return lines[-1]
