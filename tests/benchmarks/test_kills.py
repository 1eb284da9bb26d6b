"""Nothing is left of a killed job of two ranks, and its row is true. `benchmarks/kills.py` kills at random."""

import random
import signal
import sys

import pytest

from benchmarks.kills import SIGNALS, TARGETS, Kill, problems_after, random_kill


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in Linux's /proc")
@pytest.mark.parametrize(
    "kill",
    [
        Kill("sweep", signal.SIGKILL, in_training=True, delay_s=0.2),
        Kill("sweep", signal.SIGHUP, in_training=True, delay_s=0.4),
        Kill("torchrun", signal.SIGKILL, in_training=False, delay_s=1.0),
    ],
    ids=lambda kill: f"{kill.number.name}-{kill.target}",
)
def test_a_kill_leaves_nothing_behind(kill, tmp_path):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup a process ignores it, as would those it starts
    assert problems_after(kill, tmp_path, ["trainer.accelerator=cpu", "compile.backend=eager"]) == []


def test_random_kills_are_of_all_kinds_and_again_the_same():
    kills = [random_kill(random.Random(seed)) for seed in range(200)]
    assert {kill.target for kill in kills} == set(TARGETS)
    assert {kill.number for kill in kills} == set(SIGNALS)
    assert kills == [random_kill(random.Random(seed)) for seed in range(200)]
