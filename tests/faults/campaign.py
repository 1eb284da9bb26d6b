"""How many tries a test of the campaign makes: few in `make test`, the same ones each time; many, by a seed, in `make
faults`, which adds their numbers to tally.jsonl."""

import functools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis

SEED = os.environ.get("TRAINKIT_FAULTS_SEED")  # of `make faults`
TALLY = Path(__file__).with_name("tally.jsonl")


def tries_within(limit_min: float, short: int, whole: int) -> Iterator[int]:
    """The numbers of the tries: `short` of them in `make test`; in `make faults` up to `whole`, as many as begin
    within the limit. The limits of all campaigns keep `make faults` within 30 minutes on two cores."""
    if SEED is None:
        yield from range(short)
        return
    deadline = time.monotonic() + 60 * limit_min
    for number in range(whole):
        if time.monotonic() < deadline:
            yield number


def random_seed() -> int:
    """The seed of a campaign that draws by itself."""
    return 0 if SEED is None else int(SEED)


def tries(limit_min: float, short: int, whole: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have hypothesis call a test so many times, as `tries_within` counts them."""

    def decorate(test: Any) -> Callable[..., None]:
        checks = list(hypothesis.HealthCheck)
        if SEED is None:
            return hypothesis.settings(max_examples=short, suppress_health_check=checks)(test)
        inner_test, numbers = test.hypothesis.inner_test, tries_within(limit_min, short, whole)

        @functools.wraps(inner_test)
        def within_limit(*values: Any, **named_values: Any) -> None:
            if next(numbers, None) is not None:
                inner_test(*values, **named_values)

        test.hypothesis.inner_test = within_limit
        chosen = hypothesis.settings(max_examples=whole, derandomize=False, suppress_health_check=checks)(test)
        return hypothesis.seed(int(SEED))(chosen)

    return decorate


class Outcomes:
    """How the tries of one kind ended, and the problems of those that ended as they must not.

    A try with a problem does not end the campaign: `close` adds the counts to the tally, then fails with all problems.
    """

    def __init__(self, kind: str):
        self._kind = kind
        self.counts: Counter[str] = Counter()
        self._problems: list[str] = []

    def add(self, outcome: str, problems: list[str], about: object) -> None:
        """Count a try. `about` is how to repeat it."""
        if problems:
            outcome = "problem"
            self._problems.append(f"{about}: {'; '.join(problems)}")
        self.counts[outcome] += 1
        print(f"{self._kind} {self.counts.total()}: {outcome}, {about} {'; '.join(problems)}", flush=True)

    def close(self) -> None:
        if SEED is not None:
            line = {"seed": int(SEED), "kind": self._kind, "tries": self.counts.total(), **self.counts}
            with TALLY.open("a") as tally:
                tally.write(json.dumps(line) + "\n")
        assert not self._problems, "\n".join([f"{len(self._problems)} problems", *self._problems])
