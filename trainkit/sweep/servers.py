"""The servers that start a sweep's jobs.

Several import at once: with cores enough that takes about as long as the imports of one, and the sweep waits for it
once.
"""

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
MIN_SERVERS, MAX_SERVERS = 3, 6  # each holds some hundred MiB
CORES_OF_SERVER = 2  # with so many cores for each, the imports of 6 take 1.1 times as long as those of 3


def num_servers_at_once() -> int:
    """The number of servers that this machine starts at once, unless one repeat needs more."""
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
    for scratch in Path(tempfile.gettempdir()).glob(scratch_folder(sweep, "*").name):
        shutil.rmtree(scratch, ignore_errors=True)  # of an earlier start that was killed with all its processes
    with ExitStack() as stack:
        for number, slot_number in enumerate(slot_numbers):
            server = forkserver_of(sweep, sweep.slots[slot_number], number, lock)
            servers.append(stack.enter_context(server))
        _wait_for_imports(servers, deadline)
        yield servers


def revive(servers: Sequence[Forkserver], deadline: Deadline | None = None) -> None:
    """Start servers again that have ended, as one that was killed while it waited, and wait for the imports of all, or
    for the deadline."""
    for server in servers:
        server.restart_if_ended()
    _wait_for_imports(servers, deadline)


def _wait_for_imports(servers: Sequence[Forkserver], deadline: Deadline | None) -> None:
    for server in servers:
        server.wait_for_imports(None if deadline is None else deadline.left_s)


def forkserver_of(sweep: Sweep, slot: Slot, number: int, lock: int) -> Forkserver:
    """The server of this number, which starts the jobs of one repeat in the slot.

    It imports nothing if Hydra sets a job's environment: it would do so after the imports. A job of one that does
    forks inductor's compile workers, too: new ones would import torch again, for seconds.
    """
    modules = ["trainkit.commands.train", "trainkit.training.run", "trainkit.report.outcome", INDUCTOR]
    if sweep.config.job.kind == "forward":
        modules = ["trainkit.commands.bench", "trainkit.inference.run", "trainkit.report.summary", INDUCTOR]
    if sweep.config.hydra.job.env_set:
        modules = []
    environment = job_environment()
    if modules:
        environment.setdefault("TORCHINDUCTOR_WORKER_START", "fork")
    if slot.gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = slot.gpu
    return Forkserver(modules, environment, scratch_folder(sweep, number), lock, slot.cores)


def scratch_folder(sweep: Sweep, number: int | str) -> Path:
    """The folder for the temporary files of the jobs of the server of a number, the same for each start of the sweep;
    of `*`, a pattern of all of them.

    Its path is short: the addresses of sockets below it have at most 107 characters.
    """
    name = hashlib.sha256(os.fsencode(sweep.folder.resolve())).hexdigest()[:12]
    return Path(tempfile.gettempdir(), f"trainkit-{name}-{number}")
