"""Requests with a deadline, and which of several networks answers each of them. What is simulated is said here."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Requests:
    """A stream of requests, one each `deadline_ms`, each due `deadline_ms` after it came.

    One call answers one request, one after another in the order in which they came; none is left out. So a call that
    misses its deadline lets the next request wait: `late_ms` is how long that one has waited when its turn comes. Of
    the calls only their own measured time counts; there is no real waiting for a request, and nothing between calls.
    """

    deadline_ms: float
    late_ms: float = 0.0

    @property
    def remaining_ms(self) -> float:
        """What is left of the deadline of the request whose turn it is: 0 or less where it is over."""
        return self.deadline_ms - self.late_ms

    def answer(self, time_ms: float) -> bool:
        """Answer it by a call of this time. Returns whether it missed its deadline, just when the next one waits."""
        over_ms = time_ms - self.remaining_ms
        self.late_ms = max(over_ms, 0.0)
        return over_ms > 0


def miss_frac(times_ms: Sequence[float], deadline_ms: float) -> float | None:
    """The share of the calls, in this order, that missed their deadline; None of none."""
    requests = Requests(deadline_ms)
    missed = [requests.answer(time_ms) for time_ms in times_ms]
    return sum(missed) / len(missed) if missed else None


def choose(expected_ms: Sequence[float], typical_ms: Sequence[float], remaining_ms: float) -> int:
    """The first that is expected to take no longer than what remains, and where there is none the one that typically
    takes least: then the typical time is what shortens the wait of those that come after."""
    for link, time_ms in enumerate(expected_ms):
        if time_ms <= remaining_ms:
            return link
    return typical_ms.index(min(typical_ms))
