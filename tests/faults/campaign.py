"""How many tries a test of the campaign makes: few in `make test`, the same ones each time; many, by a seed, in `make
faults`, which adds their numbers to tally.jsonl."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis

SEED = os.environ.get("TRAINKIT_FAULTS_SEED")  # of `make faults`
TALLY = Path(__file__).with_name("tally.jsonl")


def tries(short: int, whole: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have hypothesis call a test so many times."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        checks = list(hypothesis.HealthCheck)
        if SEED is None:
            return hypothesis.settings(max_examples=short, suppress_health_check=checks)(test)
        chosen = hypothesis.settings(max_examples=whole, derandomize=False, suppress_health_check=checks)(test)
        return hypothesis.seed(int(SEED))(chosen)

    return decorate


def count(kind: str, num_tries: int, **outcomes: Any) -> None:
    """Add a line to the tally, if this is `make faults`."""
    if SEED is None:
        return
    with TALLY.open("a") as tally:
        tally.write(json.dumps({"seed": int(SEED), "kind": kind, "tries": num_tries, **outcomes}) + "\n")
