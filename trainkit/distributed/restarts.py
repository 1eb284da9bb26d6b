"""Restarts by torchrun (`--max-restarts`) or a cluster: messages from one attempt of a run to the next, and their
process groups.

The agent of torchrun, which starts all ranks anew if one has failed, keeps a key-value store that outlives them. Its
entries belong to one command `torchrun`, whatever directory, host or time a rank is started in. Of several hosts, one
agent keeps it for all. Each counts those restarts alone that began with a rank of its own, so the ranks agree on their
number. A job that a cluster requeues keeps its id and its run directory, where each attempt leaves a line.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from uuid import uuid4

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not in __all__

from trainkit import cli
from trainkit.cluster import cluster_job

FIRST_ATTEMPT = "trainkit/first_attempt"
ATTEMPT, NUMBER = "trainkit/attempt", "trainkit/num_restarts"  # of several agents, the newest attempt
WAIT_S = 0.05
ATTEMPTS_FILE = ".attempts"  # of a cluster's job, in its run directory
MEETING_VARIABLES = ("MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE")
TIMEOUT = timedelta(minutes=10)  # for rank 0 to check the checksums of large checkpoints


@dataclass(frozen=True)
class FirstAttempt:
    """The run directory of a run that torchrun has restarted, and when it began, by the clock of its files."""

    run_dir: str
    began_ns: int


def num_restarts(run_dir: Path | str) -> int:
    """How many times torchrun or a cluster has started the ranks anew."""
    if cluster_job() is not None:
        return len(_attempts_of_job(str(run_dir)))
    return _num_torchrun_restarts()


def _num_torchrun_restarts() -> int:
    if cli.has_several_agents() and _agent_store() is not None:
        return _agreed_restarts()
    return _counted_restarts()


def _counted_restarts() -> int:
    """As torchrun's agent of this host counts them."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


@cache  # all ranks of an attempt agree once
def _agreed_restarts() -> int:
    """The number of this attempt, larger than that of each attempt before it. Waits for all ranks.

    Rank 0 names itself in the store. The others join it there, and take its number once it has named them. So no rank
    takes the number of an attempt before this one, whose entries are still in the store.
    """
    store = _agent_store()
    assert store is not None
    if os.environ["RANK"] == "0":
        return _number_attempt(store, uuid4().hex)
    return _join_attempt(store, uuid4().hex)


def _number_attempt(store: TCPStore, own_id: str) -> int:
    store.set(ATTEMPT, own_id)
    joins = [f"{ATTEMPT}/{own_id}/{rank}" for rank in range(1, int(os.environ["WORLD_SIZE"]))]
    while not store.check(joins):  # store.get would wait where no signal interrupts it
        time.sleep(WAIT_S)
    number = _counted_restarts()
    if store.check([NUMBER]):
        number = max(number, int(store.get(NUMBER)) + 1)
    ids = []
    for join in joins:
        joined_id, count = store.get(join).decode().split()
        ids.append(joined_id)
        number = max(number, int(count))
    store.set(NUMBER, str(number))
    store.set(f"{ATTEMPT}/{own_id}", " ".join([str(number), *ids]))
    return number


def _join_attempt(store: TCPStore, own_id: str) -> int:
    while True:
        if store.check([ATTEMPT]):
            attempt = f"{ATTEMPT}/{store.get(ATTEMPT).decode()}"
            store.set(f"{attempt}/{os.environ['RANK']}", f"{own_id} {_counted_restarts()}")
            if store.check([attempt]):
                number, *ids = store.get(attempt).decode().split()
                if own_id in ids:
                    return int(number)
        time.sleep(WAIT_S)


@cache  # rank 0 adds a line for this attempt
def _attempts_of_job(run_dir: str) -> list[int]:
    """When each attempt of the cluster's job before this one began to train."""
    job = cluster_job()
    path = Path(run_dir, ATTEMPTS_FILE)
    if job is None or not path.exists():
        return []
    began_ns = []
    for line in path.read_text().splitlines():
        job_id, _, time_ns = line.partition(" ")
        if job_id == job.id:
            began_ns.append(int(time_ns))
    return began_ns


@cache  # run() changes the variables that lead to it
def _agent_store() -> TCPStore | None:
    """The store of torchrun's agent; None without torchrun, or if its rendezvous keeps none."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=TIMEOUT)


def publish_first_attempt(attempt: FirstAttempt) -> None:
    """Tell the next attempts, if torchrun or a cluster starts any."""
    job = cluster_job()
    if job is not None:
        with Path(attempt.run_dir, ATTEMPTS_FILE).open("a") as file:
            file.write(f"{job.id} {attempt.began_ns}\n")
        return
    store = _agent_store()
    if store is not None and not store.check([FIRST_ATTEMPT]):
        store.set(FIRST_ATTEMPT, f"{attempt.began_ns} {attempt.run_dir}")


def first_attempt(run_dir: Path | str = "") -> FirstAttempt | None:
    """The attempt that this one follows; None if this is the first, or if those before ended before they trained.

    A cluster's job needs the run directory; torchrun's agent knows it.
    """
    if cluster_job() is not None:
        attempts = _attempts_of_job(str(run_dir))
        return FirstAttempt(str(run_dir), attempts[0]) if attempts else None
    if _num_torchrun_restarts() == 0:
        return None
    return published_attempt()


def published_attempt() -> FirstAttempt | None:
    """The first attempt that torchrun's agent knows: this one, or one before it."""
    store = _agent_store()
    if store is None or not store.check([FIRST_ATTEMPT]):
        return None
    began_ns, _, run_dir = store.get(FIRST_ATTEMPT).decode().partition(" ")
    return FirstAttempt(run_dir, int(began_ns))


def choose_on_rank_0(choose: Callable[[], str]) -> str:
    """The choice of rank 0, on every rank. Called once by each rank of a restart, before they form a group.

    In a cluster's job each rank chooses: all see the same files.
    """
    if cluster_job() is not None:
        return choose()
    store = _agent_store()
    assert store is not None, "the first attempt was found in it"
    key = f"trainkit/choice_{_num_torchrun_restarts()}"
    if os.environ["RANK"] == "0":
        store.set(key, choose())
    return store.get(key).decode()


@contextmanager
def meeting_apart() -> Iterator[None]:
    """A context in which the ranks of a restart form their group in a store of rank 0's own.

    In the agent's store a group finds the addresses of the ranks before the restart, and fails or hangs: torch 2.13
    reuses it without a prefix for the attempt, https://github.com/pytorch/pytorch/issues/135712. Remove this when
    tests/test_workarounds.py says that a restarted rank finds no key of the rank before it.
    """
    store = _agent_store() if _num_torchrun_restarts() > 0 else None
    if store is None:
        yield
        return
    before = {name: os.environ[name] for name in MEETING_VARIABLES}
    key = f"trainkit/meeting_port_{_num_torchrun_restarts()}"
    if os.environ["RANK"] == "0":
        own_store = TCPStore(os.environ["MASTER_ADDR"], 0, is_master=True, wait_for_workers=False, multi_tenant=True)
        store.set(key, str(own_store.port))
    os.environ["MASTER_PORT"] = store.get(key).decode()
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    try:
        yield
    finally:
        os.environ.update(before)
