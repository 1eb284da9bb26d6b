"""The line about what a sweep does: how long the running job takes, and will take, or the imports before it."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from trainkit.report.progress import DRAW_S, LiveLine, clock
from trainkit.sweep.plan import Job


class JobClock:
    """Times the jobs of a sweep that run one after another, and shows on a terminal how far the one is that runs.

    It is expected to take as long as in the repeat before, or else as the median of the jobs so far.
    """

    def __init__(self) -> None:
        self._durations_s: dict[tuple[str, ...], float] = {}  # of the last run of each setting

    @contextmanager
    def running(self, job: Job, title: str) -> Iterator[None]:
        """A job runs while this is entered."""
        start_s = time.monotonic()
        with timed_line(title, self._expected_s(job)):
            yield
        self._durations_s[tuple(job.overrides)] = time.monotonic() - start_s

    def _expected_s(self, job: Job) -> float | None:
        if not self._durations_s:
            return None
        return self._durations_s.get(tuple(job.overrides), median(self._durations_s.values()))


@contextmanager
def timed_line(title: str, expected_s: float | None = None) -> Iterator[None]:
    """Show on a terminal how long this has been entered."""
    start_s = time.monotonic()

    def text() -> str:
        line = f"{title}: {clock(time.monotonic() - start_s)}"
        return line if expected_s is None else f"{line} of about {clock(expected_s)}"

    every_s = DRAW_S if sys.stderr.isatty() else None  # a log has the line about its end
    with LiveLine(text, every_s):
        yield
