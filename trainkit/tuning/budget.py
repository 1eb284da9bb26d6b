"""The budget of a race: what it has used, what fits into the rest, and the share of each job."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from trainkit.sweep.processes import GRACE_S
from trainkit.tuning.forecast import Entry, coldest_compile_s, predicted_s

FIRST_SHARE = 0.5  # of the budget, for the first job
LEAST_SHARE = 0.1  # of the budget, for every job
TIMES_PREDICTED = 3.0  # the share of a job, over its predicted time


class Budget:
    """The wall-clock time of a race, `limit_s` over all its starts: that of the earlier starts, and of this process
    since it has started. No job may take longer than `job_limit_s`."""

    def __init__(
        self,
        limit_s: float,
        earlier_s: float,
        process_age_s: float = 0.0,
        job_limit_s: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ):
        self.limit_s, self.job_limit_s = limit_s, job_limit_s
        self._now = now
        self._start_s = now() - process_age_s - earlier_s

    @property
    def used_s(self) -> float:
        return self._now() - self._start_s

    @property
    def left_s(self) -> float:
        return max(0.0, self.limit_s - self.used_s)

    def has_room(self, entry: Entry, is_final: bool, entries: Sequence[Entry], kept_s: float = 0.0) -> bool:
        """Whether the next job of an arm fits, with the time that is kept for what comes before and after it."""
        return GRACE_S + predicted_s(entry, is_final, entries) + kept_s <= self.left_s

    def share_s(self, entry: Entry, is_final: bool, entries: Sequence[Entry]) -> float:
        """The time that the next job of an arm may take. A job that takes longer is ended, and its arm is out. The
        first one has the time to compile what another arm has compiled: torch may not find it in the cache."""
        expected_s = predicted_s(entry, is_final, entries)
        share_s = TIMES_PREDICTED * expected_s
        if not entry.jobs:
            share_s += coldest_compile_s(entry, entries)
        share_s = max(share_s, LEAST_SHARE * self.limit_s)
        if expected_s == 0 or (entry is entries[0] and not entry.whole_jobs):
            share_s = FIRST_SHARE * self.limit_s
        share_s = round(share_s, 1)
        if self.job_limit_s is not None:
            share_s = min(share_s, self.job_limit_s)
        return share_s

    @property
    def longest_job_s(self) -> float:
        """The time until a job must be ended to keep the budget."""
        return max(self.left_s - GRACE_S, 1.0)


@contextmanager
def repeating(note: Callable[[], None], every_s: float) -> Iterator[None]:
    """A context in which a thread calls `note` again and again; it is called once more at the end, whatever ends it."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_s):
            with suppress(OSError):  # the last note says so
                note()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        note()
