"""Small replays by benchmarks/race_replay.py."""

import sys

import numpy as np
import pytest

from benchmarks import race_replay
from tests.conftest import ROOT


def test_a_quiet_race_is_decided_well_with_two_thirds_of_the_processes():
    chance = np.random.default_rng(0)
    fields = [race_replay.simulated(chance, 24, 0.005, "normal") for _ in range(3)]
    outcome = race_replay.tally(fields, 12, chance)
    race, full = outcome["race"], outcome["full"]
    assert len(race.named) == 12
    assert race.num_wrong == 0
    assert np.mean(race.processes) < np.mean(full.processes) * 2 / 3


def test_few_winners_are_wrong_where_contenders_have_two_peaks():
    chance = np.random.default_rng(0)
    fields = [race_replay.simulated(chance, 12, 0.002, "two-peaked") for _ in range(5)]
    race = race_replay.Tally()
    for number in range(40):
        field = fields[number % len(fields)]
        race.add(number % len(fields), field, *race_replay.run_race(field, chance))
    assert len(race.named) >= 30
    assert race.num_wrong <= 0.05 * len(race.named)


def test_committed_rows_are_raced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    rows = ROOT / "measurements" / "networks-h200.jsonl"
    monkeypatch.setattr(sys, "argv", ["race_replay.py", "--races", "8", str(rows)])
    assert race_replay.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [["networks-h200", way] for way in race_replay.WAYS]
    assert [line.split()[:3] for line in lines[4:]] == [["all", "recorded", way] for way in race_replay.WAYS]


def test_a_recorded_arm_is_drawn_with_its_own_spread():
    chance = np.random.default_rng(0)
    recorded = [10.0, 11.0, 12.0]
    runner = race_replay._recorded_runner(recorded)
    logs = [np.log(runner.draw(chance)) for _ in range(4000)]
    assert np.mean(logs) == pytest.approx(np.log(recorded).mean(), abs=0.01)
    assert np.std(logs) == pytest.approx(np.log(recorded).std(ddof=1), rel=0.05)
