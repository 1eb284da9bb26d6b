"""The servers that start a sweep's jobs. Several import at once: that takes about as long as the imports of one."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from trainkit.sweep.forkserver import Forkserver
from trainkit.sweep.job import Deadline
from trainkit.sweep.plan import Sweep
from trainkit.sweep.processes import job_environment
from trainkit.sweep.slots import Slot

INDUCTOR = "torch._inductor.compile_fx"  # most of the imports of a process's first compile
MIN_SERVERS, MAX_SERVERS = 3, 6  # each holds about half a GiB of memory
CORES_OF_SERVER = 2  # with so many cores for each, the imports of 6 take 1.1 times as long as those of 3


def num_servers_at_once() -> int:
    """The number of servers that this machine starts at once."""
    if sys.platform != "linux":
        return 1
    return max(MIN_SERVERS, min(MAX_SERVERS, len(os.sched_getaffinity(0)) // CORES_OF_SERVER))


@contextmanager
def start_servers(
    sweep: Sweep, slot_numbers: Sequence[int], lock: int, deadline: Deadline | None = None
) -> Iterator[list[Forkserver]]:
    """Start a server in each of these slots at once, and end all when this is left. They have imported, have ended, or
    the deadline has passed: nothing imports while a job is measured.

    On other systems than Linux there are none: a fork does not go well with their libraries."""
    servers: list[Forkserver] = []
    if sys.platform != "linux":
        yield servers
        return
    with ExitStack() as stack:
        for number, slot_number in enumerate(slot_numbers):
            server = forkserver_of(sweep, sweep.slots[slot_number], number, lock)
            servers.append(stack.enter_context(server))
        for server in servers:
            server.wait_for_imports(None if deadline is None else deadline.left_s)
        yield servers


def forkserver_of(sweep: Sweep, slot: Slot, number: int, lock: int) -> Forkserver:
    """The server of this number, which starts the jobs of one repeat in the slot.

    It imports nothing if Hydra sets a job's environment: it would do so after the imports. A job of one that does
    forks inductor's compile workers, too: new ones would import torch again, for seconds.
    """
    modules = ["trainkit.training.run", INDUCTOR]
    if sweep.config.job.kind == "forward":
        modules = ["trainkit.inference.run", INDUCTOR]
    if sweep.config.hydra.job.env_set:
        modules = []
    environment = job_environment()
    if modules:
        environment.setdefault("TORCHINDUCTOR_WORKER_START", "fork")
    if slot.gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = slot.gpu
    scratch = scratch_folder(sweep, number)
    shutil.rmtree(scratch, ignore_errors=True)  # of an earlier start that was killed with all its processes
    return Forkserver(modules, environment, scratch, lock, slot.cores)


def scratch_folder(sweep: Sweep, number: int) -> Path:
    """The folder for the temporary files of the jobs of a server: the same for each start of the sweep.

    Its path is short: the addresses of sockets below it have at most 107 characters.
    """
    name = hashlib.sha256(os.fsencode(sweep.folder.resolve())).hexdigest()[:12]
    return Path(tempfile.gettempdir(), f"trainkit-{name}-{number}")
