"""Runs the jobs of a sweep, each in a fresh process, one after another, and compares them at the end.

A fresh process, because compiled code, counters, caches and the allocator of one job would be part of the next one's
measurement. On Linux it is forked from one that has imported what a job imports; elsewhere a fork does not go well with
the system's libraries, and it is started anew, as torchrun's are. A package under `hydra_plugins` is where Hydra looks
for launchers.
"""

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins.trainkit_launcher.forkserver import ForkedJob, Forkserver
from trainkit.analysis.comparison import compare
from trainkit.config.schema import WHERE, ConfigError, RunConfig, of_the_other
from trainkit.diagnosis.findings import read_diagnoses
from trainkit.report import summary, tables
from trainkit.results.rows import Row, asked, read_row, read_rows, read_runs, settings_typed, write_row

GRACE_S = 15  # for a job that was told to stop to write its row
RANK_VARIABLES = re.compile(r"(RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|NODE_RANK|TORCHELASTIC_)")
SWEEPS_OWN = re.compile(r"hydra[./](launcher|sweeper|sweep|mode|run)\b")


@dataclass
class LauncherConfig:
    _target_: str = "hydra_plugins.trainkit_launcher.launcher.TrainkitLauncher"
    timeout_s: float | None = None
    nproc_per_node: int | None = None
    repeats: int = 1


ConfigStore.instance().store(group="hydra/launcher", name="trainkit", node=LauncherConfig)


class TrainkitLauncher(Launcher):
    """Hydra's launcher interface. `launch` ends the process with status 1 where a job has not ended `ok`."""

    def __init__(self, timeout_s: float | None, nproc_per_node: int | None, repeats: int):
        for setting, value in (("timeout_s", timeout_s), ("nproc_per_node", nproc_per_node), ("repeats", repeats)):
            if value is not None and value <= 0:
                raise ConfigError(f"hydra.launcher.{setting} = {value}: expected a number above 0")
        self.timeout_s, self.nproc_per_node, self.repeats = timeout_s, nproc_per_node, repeats

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            raise ConfigError("--multirun = True: a sweep starts its jobs itself; use hydra.launcher.nproc_per_node")
        sweep = Path(config.hydra.sweep.dir).name
        if config.sweep is not None and not re.fullmatch(r"[A-Za-z0-9_.+-]*[A-Za-z0-9_+-]", config.sweep):
            raise ConfigError(f"sweep = {config.sweep}: names a folder; use letters, digits and _ . + - alone")
        self.hydra_context, self.config, self.sweep = hydra_context, config, sweep

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        setup_globals()
        # What does not compose, or is another script's, is said before the first job; what cannot be run is the row of
        # its job.
        configs = [self._compose(list(overrides)) for overrides in job_overrides]
        check_kind(configs, job_overrides)
        sweep_dir = Path(self.config.hydra.sweep.dir)
        sweep_dir.mkdir(parents=True, exist_ok=True)
        lock = (sweep_dir / ".lock").open("w")  # held until this process ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"sweep = {self.sweep}: is running already; wait for it, or use another name") from None
        jobs = list(zip(map(list, job_overrides), configs, strict=True))
        # SIGTERM ends the job under way too; and a job must not inherit an ignored SIGINT, which ends it in time.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            rows = self._run_all(jobs, sweep_dir)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        self._report(sweep_dir, configs[0])
        if interrupted:
            print(f"interrupted; the same command with sweep={self.sweep} goes on", flush=True)
            sys.exit(130)
        if any(row.status != "ok" for row in rows):
            sys.exit(1)
        return [JobReturn(overrides=job[0], _return_value=None, status=JobStatus.COMPLETED) for job in jobs]

    def _report(self, sweep_dir: Path, config: DictConfig) -> None:
        """Print the comparison, write it as Markdown and HTML, and give it to W&B where the jobs' rows went."""
        from trainkit.report import page

        rows, histories = read_runs(sweep_dir)
        comparison = compare(rows)
        tables.print_comparison(comparison)
        diagnoses, complaints = read_diagnoses(sweep_dir)
        written = page.write_report(sweep_dir, comparison, histories, diagnoses)
        for complaint in complaints:
            print(f"{complaint}; it is left out of the page", flush=True)
        print(f"rows and logs: {sweep_dir}; {', '.join(path.name for path in written)}", flush=True)
        if str(config.logger.get("_target_")).endswith("WandbLogger"):
            from trainkit.report.wandb_comparison import publish  # with wandb

            publish(comparison, written[-1].read_text(), self.sweep, sweep_dir, config.logger)

    def _run_all(self, jobs: list[tuple[list[str], DictConfig]], sweep_dir: Path) -> list[Row]:
        common = set.intersection(*(set(overrides) for overrides, _ in jobs))
        shared = " ".join(word for word in jobs[0][0] if word in common and not word.startswith("sweep="))
        num_jobs = len(jobs) * self.repeats
        print(f"sweep {self.sweep}: {num_jobs} job(s), each with {shared or 'the defaults'}", flush=True)
        rows: list[Row] = []
        for repeat in range(self.repeats):  # the whole list again and again: drift of the machine hits all settings
            which = f" (repeat {repeat})" if self.repeats > 1 else ""
            with self._forkserver() as forkserver:
                for overrides, config in jobs:
                    label = " ".join(override for override in overrides if override not in common)
                    title = f"[{len(rows) + 1}/{num_jobs}] {label or 'job'}{which}"
                    row = self._finished(sweep_dir, overrides, repeat)
                    if row is not None:
                        print(f"{title}: finished before, {summary.job_outcome(row)}", flush=True)
                    else:
                        print(title, end=": ", flush=True)
                        row = self._run(forkserver, new_directory(sweep_dir, label), overrides, config, repeat)
                        print(summary.job_outcome(row), flush=True)
                    rows.append(row)
        return rows

    def _forkserver(self) -> AbstractContextManager[Forkserver | None]:
        # What Hydra sets in the environment of a job would come too late for what was imported before.
        if self.nproc_per_node is not None or self.config.hydra.job.env_set or sys.platform != "linux":
            return nullcontext()
        module = "trainkit.inference.bench" if self.config.job.kind.value == "forward" else "trainkit.training.run"
        return Forkserver(module, environment())

    def _compose(self, overrides: list[str]) -> DictConfig:
        return self.hydra_context.config_loader.load_sweep_config(self.config, overrides)

    def _finished(self, sweep_dir: Path, overrides: list[str], repeat: int) -> Row | None:
        """The row of this job where it ran to its end, well or not, in an earlier start of the sweep.

        A job of the other script, or that ran with other processes, is another job, and one that hit another time
        limit has not ended.
        """
        asked_for = (self.config.job.kind.value, settings_typed(overrides), repeat)
        for row in read_rows(sweep_dir):
            ended = row.status not in ("interrupted", "timeout") or (row.status, row.error) == self._timeout()
            as_many = self.nproc_per_node in (None, row.world_size) or row.device_name is None
            if (row.kind, row.overrides, row.repeat) == asked_for and ended and as_many:
                return row
        return None

    def _timeout(self) -> tuple[str, str]:
        return "timeout", f"stopped after {self.timeout_s or 0:g} s (hydra.launcher.timeout_s)"

    def _run(
        self, forkserver: Forkserver | None, run_dir: Path, overrides: list[str], config: DictConfig, repeat: int
    ) -> Row:
        """Run one job to its end; its output goes to output.log in its directory."""
        command, log = self._command(run_dir, overrides, repeat), run_dir / "output.log"
        process, returncode, ended = None, 0, None
        try:
            process = started(command, log) if forkserver is None else forkserver.start(command, log)
            process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            ended = self._timeout()
        except KeyboardInterrupt:
            ended = "interrupted", "the sweep was interrupted"
        finally:
            if process is not None:
                returncode = stop(process)
        row = read_row(run_dir) or blank_row(config, self.sweep, run_dir, overrides, repeat)
        if ended is not None and row.status != "ok":
            row = replace(row, status=ended[0], error=ended[1])
        elif row.status == "interrupted":
            row = replace(row, status="failed", error=cause_of_death(returncode, log))
        write_row(run_dir, row)
        if ended is not None and ended[0] == "interrupted":
            print(summary.job_outcome(row), flush=True)
            raise KeyboardInterrupt
        return row

    def _command(self, run_dir: Path, overrides: list[str], repeat: int) -> list[str]:
        """What a Python interpreter is called with."""
        start: list[str] = []
        if self.nproc_per_node is not None:
            start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.nproc_per_node}"]
        hydra = [word for word in self.config.hydra.overrides.hydra if not SWEEPS_OWN.match(word)]
        flags = [f"--config-name={self.config.hydra.job.config_name}"]
        flags += [
            f"--config-dir={s.path[7:]}"
            for s in self.config.hydra.runtime.config_sources
            if s.provider == "command-line"
        ]
        own = [f"sweep={self.sweep}", f"repeat={repeat}", "hydra.mode=RUN", f"hydra.run.dir='{run_dir}'"]
        return [*start, os.path.abspath(sys.argv[0]), *flags, *overrides, *hydra, *own]


def check_kind(configs: Sequence[DictConfig], job_overrides: Sequence[Sequence[str]]) -> None:
    """Raise ConfigError for settings that every job which has them would refuse: they belong to the other script."""
    found: dict[str, None] = {}
    for config, overrides in zip(configs, job_overrides, strict=True):
        forward: Any = OmegaConf.to_object(config.forward)
        found |= dict.fromkeys(of_the_other(config.job.kind, forward, overrides))
    if found:
        raise ConfigError(f"{', '.join(found)}: {WHERE[configs[0].job.kind.value]}")


def new_directory(sweep_dir: Path, label: str) -> Path:
    """A new directory for a job: the next free number and the values in its label, as far as they name files."""
    taken = [int(found[1]) for path in sweep_dir.iterdir() if (found := re.match(r"(\d+)-", path.name))]
    values = "-".join(override.split("=", 1)[1] for override in label.split(" ") if "=" in override)
    name = re.sub(r"[^A-Za-z0-9.+-]+", "_", values)[:80] or "job"
    path = sweep_dir / f"{max(taken, default=-1) + 1:03d}-{name}"
    path.mkdir()
    return path


def environment() -> dict[str, str]:
    """A job's: this process's, less what one of several ranks would have."""
    return {name: value for name, value in os.environ.items() if not RANK_VARIABLES.match(name)}


def started(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """`python COMMAND`, with all that it says in `log`, in a session of its own, so that everything that it starts can
    be ended with it."""
    with log.open("w") as output:
        return subprocess.Popen(
            [sys.executable, *command], stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment(), start_new_session=True,
        )  # fmt: skip


def stop(process: subprocess.Popen[bytes] | ForkedJob) -> int:
    """End a job and all it started: SIGINT, so that it writes its row, then SIGKILL. Returns its exit status."""
    if process.poll() is None:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):  # it has just ended; SIGKILL comes next
            os.killpg(process.pid, signal.SIGINT)
            process.wait(GRACE_S)
    with suppress(ProcessLookupError):  # nothing of it is left
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def blank_row(config: DictConfig, sweep: str, run_dir: Path, overrides: list[str], repeat: int) -> Row:
    """The row of a job that died before it could write one: what was asked, and no more."""
    try:
        values: dict[str, Any] = {}
        for group in ("compile", "amp", "ddp", "trainer", "forward"):
            values[group] = OmegaConf.to_object(config[group])
        plain = RunConfig(**values, data={"batch_size": config.data.get("batch_size")}, seed=config.seed)
    except OmegaConfBaseException:
        plain = RunConfig()
    plain.job.kind = config.job.kind
    plain.job.model = config.hydra.runtime.choices.model
    plain.job.data = config.hydra.runtime.choices.data
    plain.job.run_dir, plain.job.overrides = str(run_dir), overrides
    plain.sweep, plain.repeat = sweep, repeat
    return Row(status="interrupted", **asked(plain))


def cause_of_death(returncode: int, log: Path) -> str:
    """Why a job that could not say so itself has ended: the signal that killed it, its complaint, or its last line."""
    if returncode < 0:
        return f"killed by {signal.Signals(-returncode).name}"
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    complaint = next((line for line in lines if re.match(r"[\w.]+ = .+: ", line)), None)
    if complaint is not None:
        return complaint
    return lines[-1] if lines else f"exit status {returncode} without a word"
