"""Requests with a deadline: which of them is served next, by which stages of a cascade, and when its answer is there.

No call is broken off. A GPU runs every kernel that was launched to its end, and a call on a CPU does not return before
it has its result; nor is either pre-empted by a later one. So an answer for the deadline (`forward.late=fallback`) is
computed before the call that may be late, and the next request waits until that call has ended.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from trainkit.config.schema import Late, RunConfig


@dataclass(frozen=True)
class Traffic:
    """Requests come one every `period_ms`, each due `deadline_ms` after it came. `emergency_frac` of them, drawn by
    `seed`, are emergencies, which with `emergency_first` are served before all that wait."""

    deadline_ms: float
    period_ms: float
    emergency_frac: float = 0.0
    emergency_first: bool = False
    seed: int = 0


def requested_traffic(config: RunConfig) -> Traffic | None:
    """The traffic of `forward.*`; None without a deadline."""
    forward = config.forward
    if forward.deadline_ms is None:
        return None
    period_ms = forward.period_ms or forward.deadline_ms
    return Traffic(forward.deadline_ms, period_ms, forward.emergency_frac, forward.emergency_first, config.seed)


@dataclass(frozen=True)
class Request:
    """`arrival_ms` is counted from the first request."""

    arrival_ms: float
    is_emergency: bool


@dataclass(frozen=True)
class Answer:
    """What a stage returned: the time of its call, and how many of the targets it predicts, if it does."""

    stage: int
    time_ms: float
    num_right: int = 0
    num_targets: int = 0


@dataclass(frozen=True)
class Response:
    """The answer that a request got, `time_ms` after it came. `in_place`: of one that was not there at the deadline."""

    answer: Answer
    time_ms: float
    is_emergency: bool
    is_missed: bool
    in_place: bool = False


class Requests:
    """A simulated stream of requests, which one server serves one after another; none is dropped.

    Only the measured times of the calls count: nothing really waits for a request, and the time between calls is
    ignored. A call that takes longer than the period lets later requests wait.
    """

    def __init__(self, traffic: Traffic):
        self.responses: list[Response] = []
        self._traffic = traffic
        self._random = random.Random(traffic.seed)
        self._num_requests = 0
        self._now_ms = 0.0
        self._urgent: deque[Request] = deque()
        self._waiting: deque[Request] = deque()
        self._coming = self._draw()
        self._request = self._next()

    @property
    def waited_ms(self) -> float:
        """How long the request whose turn it is has waited."""
        return self._now_ms - self._request.arrival_ms

    @property
    def remaining_ms(self) -> float:
        """The time left for the request whose turn it is: 0 or less after its deadline."""
        return self._traffic.deadline_ms - self.waited_ms

    def serve(self, answers: Sequence[Answer]) -> Response:
        """Serve the request whose turn it is by calls in this order: it gets the last answer, or at its deadline the
        one before, if there are two and the last one is late."""
        deadline_ms, waited_ms = self._traffic.deadline_ms, self.waited_ms
        busy_ms = sum(answer.time_ms for answer in answers)
        answer, time_ms = answers[-1], waited_ms + busy_ms
        in_place = len(answers) > 1 and time_ms > deadline_ms
        if in_place:
            answer = answers[-2]
            time_ms = max(deadline_ms, time_ms - answers[-1].time_ms)
        response = Response(answer, time_ms, self._request.is_emergency, time_ms > deadline_ms, in_place)
        self.responses.append(response)
        self._now_ms += busy_ms
        self._request = self._next()
        return response

    def _next(self) -> Request:
        """The request that is served next; the time goes on to its arrival if none waits."""
        if not self._urgent and not self._waiting:
            self._now_ms = max(self._now_ms, self._coming.arrival_ms)
        while self._coming.arrival_ms <= self._now_ms:
            is_urgent = self._coming.is_emergency and self._traffic.emergency_first
            queue = self._urgent if is_urgent else self._waiting
            queue.append(self._coming)
            self._coming = self._draw()
        return (self._urgent or self._waiting).popleft()

    def _draw(self) -> Request:
        arrival_ms = self._num_requests * self._traffic.period_ms
        self._num_requests += 1
        return Request(arrival_ms, self._random.random() < self._traffic.emergency_frac)


def simulate(traffic: Traffic, answers: Sequence[Answer]) -> list[Response]:
    """The responses to requests that are served by one call each."""
    requests = Requests(traffic)
    for answer in answers:
        requests.serve([answer])
    return requests.responses


def choose_stage(expected_ms: Sequence[float], typical_ms: Sequence[float], remaining_ms: float) -> int:
    """The first stage whose expected time fits into the remaining time, or else the stage with the least typical time.

    If no stage fits, the typical time decides: it shortens the wait of the later requests.
    """
    for stage, time_ms in enumerate(expected_ms):
        if time_ms <= remaining_ms:
            return stage
    return _fastest(typical_ms)


def choose_calls(
    expected_ms: Sequence[float], typical_ms: Sequence[float], remaining_ms: float, late: Late
) -> list[int]:
    """The stages to call for a request, in order: with late=fallback the fastest before the chosen one."""
    if late == "wait":
        return [choose_stage(expected_ms, typical_ms, remaining_ms)]
    fastest = _fastest(typical_ms)
    stage = choose_stage(expected_ms, typical_ms, remaining_ms - expected_ms[fastest])
    if stage == fastest:
        return [fastest]
    return [fastest, stage]


def _fastest(typical_ms: Sequence[float]) -> int:
    return typical_ms.index(min(typical_ms))
