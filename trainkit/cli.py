"""The edge of a process: its rank, its exit status, and one line on stderr for each mistake."""

import gc
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException

from trainkit.cluster import cluster_job
from trainkit.config.complaints import UNREADABLE, complaints, typed_overrides
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.search_path import search_path_complaints
from trainkit.config.secrets import secret_complaints
from trainkit.process_tree import signal_at_end_of_parent
from trainkit.standard_output import outlive_reader

PROCESS_COUNTS = re.compile(r"(hydra\.launcher\.nproc_per_node=)([^\[].*,.*)")
READABLE = (HydraException, OmegaConfBaseException)  # errors whose words a user can read
SWEEP_SETTINGS = re.compile(r"\+*hydra\.(launcher|sweep|sweeper)\.")
LOG_SETTINGS = re.compile(r"\+*hydra\.(verbose|job_logging|hydra_logging)\b")
FULL_ERROR = "TRAINKIT_FULL_ERROR"  # the HYDRA_FULL_ERROR of the user, here and in all processes that this one starts
SPEAKING_S = 5  # for rank 0 to print, before torchrun ends all ranks because one has ended


class JobError(RuntimeError):
    """A job of a sweep has not ended `ok`, in a process that it shares with other jobs."""


def rank() -> int:
    """This process's rank, as torchrun, a cluster or Lightning's launcher set it; 0 without a launcher."""
    job = cluster_job()
    if job is not None:
        return job.rank
    variable = "RANK" if _under_torchrun() else "LOCAL_RANK"
    return int(os.environ.get(variable, 0))


def _under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def has_several_agents() -> bool:
    """Whether several commands `torchrun`, one on each host, have started the ranks of this run."""
    return _under_torchrun() and int(os.environ.get("GROUP_WORLD_SIZE", 1)) > 1


def entry(
    main: Callable[[], Any], conf: Path, name: str = "config", find_run_dir: Callable[[], str | None] = lambda: None
) -> None:
    """Call a Hydra main of conf/<name>.yaml. Settings that do not compose end the process with one line for each
    mistake and exit status 2.

    Of the ranks that torchrun launched, rank 0 alone gets a Hydra run directory: after a restart the one that
    `find_run_dir` finds.
    """
    add_working_directory()
    outlive_reader()
    if "LOCAL_RANK" in os.environ:  # started by torchrun, or by rank 0: no rank outlives them
        # The others say in the row that rank 0 was lost, and end.
        signal_at_end_of_parent(signal.SIGKILL if _under_torchrun() else signal.SIGTERM)
    # `1,2` processes become the list `[1,2]`: Hydra refuses sweeps of its own settings.
    sys.argv[1:] = [PROCESS_COUNTS.sub(r"\1[\2]", argument) for argument in sys.argv[1:]]
    if _under_torchrun() and rank() > 0:
        sys.argv[1:] = _with_overrides(sys.argv[1:], ["hydra.output_subdir=null", "hydra.run.dir=."])
    # Of several agents, each counts the restarts alone that began with a rank of its own.
    elif os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" or has_several_agents():
        run_dir = find_run_dir()
        if run_dir is not None:
            sys.argv[1:] = _with_overrides(sys.argv[1:], [f"hydra.run.dir='{run_dir}'"])
    os.environ.setdefault(FULL_ERROR, os.environ.get("HYDRA_FULL_ERROR", "0"))
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise instead of printing and exiting with 1
    with one_line_errors():
        refuse(secret_complaints(list(typed_overrides(sys.argv[1:]))))
        refuse(search_path_complaints(sys.argv[1:]))
        try:
            main()
        except UNREADABLE as error:
            lines = _complaints_about(error, conf, name)
            if not lines:
                raise
            raise ConfigError(*lines) from error
        except OSError as error:  # from Hydra, which makes the run directory; a run's own failures are rows
            place = f"hydra.run.dir = {error.filename}" if error.filename else "a file of the run directory"
            raise ConfigError(
                f"{place}: {error.strerror}; choose another hydra.run.dir, or another hydra.sweep.dir"
            ) from error


def _complaints_about(error: Exception, conf: Path, name: str) -> list[str]:
    """The lines about the command line with which Hydra raised the error, before the main or at the start of a sweep;
    none if the error is not the user's."""
    for raised in (error, error.__cause__):  # of the launcher, which Hydra instantiates
        if isinstance(raised, ConfigError):
            return list(raised.complaints)
    sweeps = "-m" in sys.argv or "--multirun" in sys.argv
    lines = complaints(sys.argv[1:], conf, name, sweeps)
    if lines:
        return lines
    if isinstance(error, READABLE):
        return [" ".join(str(error).split())]
    return _hydra_complaints(sys.argv[1:], error)


def _hydra_complaints(argv: list[str], error: Exception) -> list[str]:
    """A line about the settings of Hydra's own that compose, and that it cannot start with; none if none is typed."""
    # Hydra's errors do not name the setting. This function of Hydra's reads the settings of logs alone.
    is_about_logs = any(frame.name == "configure_log" for frame in traceback.extract_tb(error.__traceback__))
    settings = []
    for override in typed_overrides(argv):
        if is_about_logs and not LOG_SETTINGS.match(override):
            continue
        if override.lstrip("+~").startswith("hydra.") and not SWEEP_SETTINGS.match(override):
            settings.append(override.replace("=", " = ", 1))
    if not settings:
        return []
    problem = " ".join(f"{type(error).__name__} {error}".split())
    return [f"{', '.join(settings)}: Hydra cannot start with it ({problem}); leave it out"]


def started(command: str) -> str:
    """How to start a command as this process was started: by its script, or by `trainkit`."""
    script = Path(sys.argv[0])
    if script.parent.name == "commands":
        return f"trainkit {command}"
    if command == "diagnose":
        script = script.parent / "scripts" / "diagnose.py"
    python = "python"
    if shutil.which(python) != sys.executable:
        python = os.path.relpath(sys.executable)
    return f"{python} {script}"


def shares_process() -> bool:
    """Whether this is a job of a sweep whose launcher runs others in the same process (basic, joblib): it must raise
    what would end another process."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN and cluster_job() is None


def end_failed_run(run_id: str, status: str, error: str | None) -> NoReturn:
    """End the process, or the job alone in a process that it shares."""
    if shares_process():
        raise JobError(f"{run_id}: {status}: {error}")
    sys.exit(exit_status(status, error))


def add_working_directory() -> None:
    """Make the modules of the working directory importable, before all others of their names, as `python -m` does."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)


def shows_tracebacks() -> bool:
    """Whether the user has set HYDRA_FULL_ERROR=1: then every error is printed with its traceback."""
    return os.environ.get(FULL_ERROR, os.environ.get("HYDRA_FULL_ERROR")) == "1"


def exit_status(status: str, error: str | None) -> int:
    """The exit status of a run whose row has this status, not `ok`, and error: 128 and the signal that stopped it (130
    after Ctrl-C, 143 after SIGTERM), else 1. Mistakes in the settings are 2."""
    stopped = re.match(r"stopped by (SIG\w+)", error or "")
    if status == "interrupted" and stopped:
        return 128 + signal.Signals[stopped[1]]
    return 1


def _failed_job_line(error: Exception) -> str:
    """The line about a job of submitit: its name, and the last line that it has printed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    name, _, _ = lines[0].partition(" with path ")
    return f"{name} failed: {lines[-1]}; the other jobs go on, and scripts/report.py compares their rows"


def _with_overrides(argv: list[str], overrides: list[str]) -> list[str]:
    """A command line with these overrides, but for `hydra.run.dir` if the user has typed it."""
    added = overrides
    if any(argument.startswith("hydra.run.dir=") for argument in argv):
        added = [override for override in overrides if not override.startswith("hydra.run.dir=")]
    # Beside the others: Hydra takes all its overrides in one place, before or after the options.
    first = next(typed_overrides(argv), None)
    position = len(argv) if first is None else argv.index(first)
    return argv[:position] + added + argv[position:]


@contextmanager
def one_line_errors_of_job() -> Iterator[None]:
    """`one_line_errors_within` for a job. In a shared process the sweep gets the exception, and goes on."""
    if shares_process():
        yield
        return
    with one_line_errors_within():
        yield


@contextmanager
def one_line_errors_within() -> Iterator[None]:
    """`one_line_errors` inside of a Hydra main, where Hydra's own work is done. Hydra would print a line of its own
    about an exception that leaves it, and `entry` would take a file of the run that cannot be written for one of
    Hydra's, and an error of trainkit for a mistake of the user."""
    with one_line_errors():
        try:
            yield
        except OSError as error:
            if shows_tracebacks():
                traceback.print_exception(error)
            sys.exit(f"{error.filename2 or error.filename or 'a file of the run'}: {error.strerror or error}")
        except UNREADABLE as error:
            if isinstance(error, ConfigError):
                raise
            traceback.print_exception(error)
            sys.exit(1)


@contextmanager
def importing() -> Iterator[None]:
    """Suspend garbage collection while torch and Lightning are imported, and keep their objects out of it for good.

    None of them is ever garbage. Searching them again and again takes a third of the time of a short process. Raises
    ConfigError if torch cannot make the directory of its compile cache, which it does when it is imported.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    except OSError as error:
        folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
        if not error.filename or not Path(folder).is_relative_to(error.filename):
            raise
        raise ConfigError(
            f"TORCHINDUCTOR_CACHE_DIR = {folder}: torch cannot make it ({error.strerror}); choose another"
        ) from error
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Print the lines of a ConfigError on stderr, once over all ranks, and exit with status 2; of a job that has failed
    in a shared process, or that submitit has lost, print one line, and exit with status 1."""
    try:
        yield
    except ConfigError as error:
        if rank() > 0:
            time.sleep(SPEAKING_S)
        if rank() == 0 or _under_torchrun():  # which has ended this process by now if rank 0 complains too
            print("\n".join(error.complaints), file=sys.stderr, flush=True)
            if shows_tracebacks():
                traceback.print_exception(error)
        sys.exit(2)
    except JobError as error:
        sys.exit(str(error))
    except RuntimeError as error:
        if not type(error).__module__.startswith("submitit."):
            raise
        sys.exit(_failed_job_line(error))
