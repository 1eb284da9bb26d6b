"""How many tries a test of the campaign makes: few in `make test`, the same ones each time; many, by a seed, in `make
faults`, which adds their numbers to tally.jsonl."""

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hypothesis

SEED = os.environ.get("TRAINKIT_FAULTS_SEED")  # of `make faults`
TALLY = Path(__file__).with_name("tally.jsonl")


def num_tries(short: int, whole: int) -> int:
    """The number of tries in `make test`, or in `make faults`."""
    return short if SEED is None else whole


def random_seed() -> int:
    """The seed of a campaign that draws by itself."""
    return 0 if SEED is None else int(SEED)


def tries(short: int, whole: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have hypothesis call a test so many times."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        number = num_tries(short, whole)
        checks = list(hypothesis.HealthCheck)
        if SEED is None:
            return hypothesis.settings(max_examples=number, suppress_health_check=checks)(test)
        chosen = hypothesis.settings(max_examples=number, derandomize=False, suppress_health_check=checks)(test)
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
