"""The start of a run: this process's rank in it, and the run directory that all ranks share."""

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from torch.distributed.rendezvous import rendezvous

from trainkit import cli
from trainkit.cluster import cluster_job, start_of_job
from trainkit.config.schema import RunConfig
from trainkit.distributed.restarts import num_restarts
from trainkit.distributed.topology import processes

ID_VARIABLE = "TRAINKIT_LAUNCH_ID"  # for the ranks that Lightning starts
WAIT_S = 0.05


@dataclass(frozen=True)
class Launch:
    """One start of a run, as one of its ranks sees it."""

    run_dir: Path
    rank: int = 0
    world_size: int = 1
    id: str = ""  # the same for all ranks, another for each start
    host: str = ""
    store: Any = None  # kept: rank 0's may be the server, and is it for as long as it lives


def join_launch(config: RunConfig) -> Launch:
    """Meet the other ranks of this start, if there are any. Raises ConfigError as `processes` does."""
    per_node, num_nodes = processes(config.trainer)
    run_dir, world_size = Path(config.job.run_dir), per_node * num_nodes
    if world_size == 1:
        return Launch(run_dir)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return _meet(run_dir, world_size)
    job = cluster_job()
    if job is not None:
        return Launch(run_dir, job.rank, world_size, start_of_job(job), socket.gethostname())
    launch_id = os.environ.setdefault(ID_VARIABLE, uuid4().hex)
    return Launch(run_dir, cli.rank(), world_size, launch_id, socket.gethostname())


def _meet(run_dir: Path, world_size: int) -> Launch:
    """Of the ranks that torchrun starts, rank 0 alone knows Hydra's directory: it tells the others."""
    store, rank, _ = next(rendezvous("env://"))
    key = f"trainkit/launch/{num_restarts(run_dir)}"
    if rank == 0:
        store.set(key, f"{uuid4().hex} {run_dir.absolute()}")
    while not store.check([key]):  # store.get would wait where no signal interrupts it
        time.sleep(WAIT_S)
    launch_id, _, shared_dir = store.get(key).decode().partition(" ")
    return Launch(Path(shared_dir), rank, world_size, launch_id, socket.gethostname(), store)
