"""Requests with a deadline: which of them miss it, and which stage of a cascade serves each of them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Requests:
    """A simulated stream of requests, one every `deadline_ms`, each due `deadline_ms` after it came.

    One call serves one request, in the order in which they came; none is dropped. A call that misses its deadline makes
    the next request wait: `late_ms` is how long that one has waited when its turn comes. Only the measured times of the
    calls count: nothing really waits for a request, and the time between calls is ignored.
    """

    deadline_ms: float
    late_ms: float = 0.0

    @property
    def remaining_ms(self) -> float:
        """The time left for the request whose turn it is: 0 or less after its deadline."""
        return self.deadline_ms - self.late_ms

    def serve(self, time_ms: float) -> bool:
        """Serve a request by a call of this time. Returns whether it missed its deadline."""
        over_ms = time_ms - self.remaining_ms
        self.late_ms = max(over_ms, 0.0)
        return over_ms > 0


def miss_frac(times_ms: Sequence[float], deadline_ms: float) -> float | None:
    """The share of the calls, in this order, that missed their deadline; None without calls."""
    if not times_ms:
        return None
    requests = Requests(deadline_ms)
    num_missed = sum(requests.serve(time_ms) for time_ms in times_ms)
    return num_missed / len(times_ms)


def choose_stage(expected_ms: Sequence[float], typical_ms: Sequence[float], remaining_ms: float) -> int:
    """The first stage whose expected time fits into the remaining time, or else the stage with the least typical time.

    If no stage fits, the typical time decides: it shortens the wait of the later requests.
    """
    for stage, time_ms in enumerate(expected_ms):
        if time_ms <= remaining_ms:
            return stage
    return typical_ms.index(min(typical_ms))
