"""Nothing is left of a killed job of two ranks, and its row is true. `benchmarks/kills.py` kills at random."""

import random
import signal
import sys

import pytest

from benchmarks import kills
from benchmarks.kills import COLLECTIVE, STARTING, VALIDATION, Kill


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in Linux's /proc")
@pytest.mark.parametrize(
    "kill",
    [
        Kill("sweep", signal.SIGKILL, COLLECTIVE, delay_s=0.2),
        Kill("sweep", signal.SIGHUP, VALIDATION, delay_s=0.4),
        Kill("torchrun", signal.SIGKILL, STARTING, delay_s=1.0),
    ],
    ids=lambda kill: f"{kill.number.name}-{kill.target}",
)
def test_a_kill_leaves_nothing_behind(kill, tmp_path):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup a process ignores it, as would those it starts
    assert kills.outcome_of(kill, tmp_path, ["trainer.accelerator=cpu", "compile.backend=eager"]).problems == []


def test_random_kills_are_of_all_kinds_and_again_the_same():
    first, second = ([kills.random_kill(random.Random(seed)) for seed in range(200)] for _ in range(2))
    assert {kill.target for kill in first} == set(kills.TARGETS)
    assert {kill.moment for kill in first} == set(kills.CHOSEN_MOMENTS)
    assert {kill.number for kill in first} == set(kills.SIGNALS)
    assert first == second
