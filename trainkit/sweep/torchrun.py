"""torchrun in a process that has the imports of its ranks: it forks them."""

import math
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from trainkit.process_tree import signal_at_end_of_parent

# With it, counting CUDA devices does not initialize CUDA. After that no fork is possible.
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
MODULE = ("-m", "torch.distributed.run")
ONE_HOST = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=1")  # as --standalone
POLL_S = 0.01


def run_torchrun(arguments: Sequence[str]) -> None:
    """Do as `python -m torch.distributed.run ARGUMENTS`, whose ranks are forks of this process.

    Raises SystemExit with status 1 if a rank fails, or if a signal stops this process.
    """
    from torch.distributed.elastic.multiprocessing import SignalException, api
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    os.environ[NVML_CHECK] = "1"  # the ranks inherit it: torchrun's agent counts devices before it forks them
    # The agent can fork a function by itself, but it waits forever if a rank is killed after the function has returned:
    # see the comments on _worker_finished_event in torch.distributed.elastic.multiprocessing.api.
    api.get_subprocess_handler = ForkedRank  # type: ignore[assignment, attr-defined]
    config, python, command = config_from_args(parse_args(arguments))
    try:
        elastic_launch(config, python)(*command)
    except ChildFailedError as error:
        sys.exit(str(error))
    except SignalException as error:
        sys.exit(f"stopped by {error.sigval.name}")
    finally:
        # The agent does not know those that it forked when the signal came, and Python waits for them when it exits.
        for rank in multiprocessing.active_children():
            rank.kill()


class ForkedRank:
    """As much of torch's SubprocessHandler as its agent uses, and of the Popen in it, for a rank that is forked.

    The rank writes where the agent does. Its end is seen at once: unlike `Process.join`, this does not wait for what
    the rank has forked, such as DataLoader workers.
    """

    def __init__(self, args: Sequence[str], env: dict[str, str], **unused: object):
        _, *command = args  # python's own option
        process = multiprocessing.get_context("fork").Process(target=run_rank, args=(env, *command))
        process.start()
        assert process.pid is not None
        self.proc = self
        self.pid = process.pid
        self._process = process

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float = math.inf) -> None:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self._process.name, timeout)
            time.sleep(POLL_S)

    def close(self, death_sig: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, death_sig)


def run_rank(environment: dict[str, str], script: str, *arguments: str) -> None:
    """Run the script in this fork as in a process of its own: in its own session, with Python's own signal handlers."""
    import torch

    signal_at_end_of_parent(signal.SIGKILL)
    os.environ.update(environment)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # torchrun gives each rank one thread; torch has read the variable when it was imported, before there were ranks.
    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
