"""Restarts by torchrun (`--max-restarts`): messages from one attempt of a run to the next, and their process groups.

The agent of torchrun, which starts all ranks anew if one has failed, keeps a key-value store that outlives them. Its
entries belong to one command `torchrun`, whatever directory, host or time a rank is started in.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not in __all__

FIRST_ATTEMPT = "trainkit/first_attempt"
MEETING_VARIABLES = ("MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE")
TIMEOUT = timedelta(minutes=10)  # for rank 0 to check the checksums of large checkpoints


@dataclass(frozen=True)
class FirstAttempt:
    """The run directory of a run that torchrun has restarted, and when it began, by the clock of its files."""

    run_dir: str
    began_ns: int


def num_restarts() -> int:
    """How many times torchrun has started the ranks anew."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


@cache  # run() changes the variables that lead to it
def _agent_store() -> TCPStore | None:
    """The store of torchrun's agent; None without torchrun, or if its rendezvous keeps none."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=TIMEOUT)


def publish_first_attempt(attempt: FirstAttempt) -> None:
    """Tell the next attempts, if torchrun starts any."""
    store = _agent_store()
    if store is not None and not store.check([FIRST_ATTEMPT]):
        store.set(FIRST_ATTEMPT, f"{attempt.began_ns} {attempt.run_dir}")


def first_attempt() -> FirstAttempt | None:
    """The attempt that this one follows; None if this is the first, or if those before ended before they trained."""
    if num_restarts() == 0:
        return None
    store = _agent_store()
    if store is None or not store.check([FIRST_ATTEMPT]):
        return None
    began_ns, _, run_dir = store.get(FIRST_ATTEMPT).decode().partition(" ")
    return FirstAttempt(run_dir, int(began_ns))


def choose_on_rank_0(choose: Callable[[], str]) -> str:
    """The choice of rank 0, on every rank. Called once by each rank of a restart, before they form a group."""
    store = _agent_store()
    assert store is not None, "the first attempt was found in it"
    key = f"trainkit/choice_{num_restarts()}"
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
    store = _agent_store() if num_restarts() > 0 else None
    if store is None:
        yield
        return
    before = {name: os.environ[name] for name in MEETING_VARIABLES}
    key = f"trainkit/meeting_port_{num_restarts()}"
    if os.environ["RANK"] == "0":
        own_store = TCPStore(os.environ["MASTER_ADDR"], 0, is_master=True, wait_for_workers=False, multi_tenant=True)
        store.set(key, str(own_store.port))
    os.environ["MASTER_PORT"] = store.get(key).decode()
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    try:
        yield
    finally:
        os.environ.update(before)
