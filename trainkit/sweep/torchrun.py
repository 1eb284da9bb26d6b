"""torchrun in a process that has the imports of its ranks: it forks them."""

import os
import runpy
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

# With it, counting CUDA devices does not initialize CUDA. After that no fork is possible.
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
MODULE = ("-m", "torch.distributed.run")
ONE_HOST = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=1")  # as --standalone


def run_torchrun(arguments: Sequence[str]) -> None:
    """Do as `python -m torch.distributed.run ARGUMENTS`, whose ranks are forks of this process.

    Raises SystemExit with status 1 if a rank fails.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    os.environ[NVML_CHECK] = "1"  # the ranks inherit it: torchrun's agent counts devices before it forks them
    config, _, (_, *command) = config_from_args(parse_args(arguments))  # python's own option comes first
    try:
        elastic_launch(replace(config, start_method="fork"), run_rank)(*command)
    except ChildFailedError as error:
        sys.exit(str(error))


def run_rank(script: str, *arguments: str) -> None:
    """Run the script in this fork as in a process of its own: in its own session, with Python's own signal handlers."""
    import torch

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
