"""The ledger of a race on the disk."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from trainkit.results.ledger import Ledger, Measurement, RaceIdentity, read_measurements

IDENTITY = RaceIdentity(
    model="simple_cnn", data="digits", goal="samples a second", base=["model=simple_cnn"], job_steps=100,
    device="NVIDIA H100", torch="2.13.0", config_digest="0a1b2c3d",
)  # fmt: skip
MEASUREMENT = Measurement(
    overrides=["compile.mode=default"], repeat=0, is_final=False, run_id="r/000", status="ok", wall_s=3.5, used_s=7.0,
    figure=1.25,
)  # fmt: skip


def test_what_was_appended_is_read_by_the_next_start(tmp_path: Path):
    ledger = Ledger(tmp_path, IDENTITY)
    assert ledger.used_s == 0
    ledger.append(MEASUREMENT)
    ledger.append(replace(MEASUREMENT, repeat=1, used_s=9.0, figure=None, status="oom", reason="oom", excludes=True))
    again = Ledger(tmp_path, IDENTITY)
    assert again.measurements == ledger.measurements
    assert again.used_s == 9.0


def test_the_time_of_a_start_that_was_killed_counts_and_that_of_another_race_does_not(tmp_path: Path):
    ledger = Ledger(tmp_path, IDENTITY)
    ledger.append(MEASUREMENT)
    ledger.note_time(30.5)
    assert Ledger(tmp_path, IDENTITY).used_s == 30.5
    ledger.append(replace(MEASUREMENT, repeat=1, used_s=40.0))
    assert Ledger(tmp_path, IDENTITY).used_s == 40.0
    ledger.path.unlink()
    assert Ledger(tmp_path, IDENTITY).used_s == 0


@pytest.mark.parametrize("kept", [0, 10, -30, -1])
def test_a_line_that_a_kill_cut_off_is_dropped_and_the_next_one_is_whole(kept: int, tmp_path: Path):
    ledger = Ledger(tmp_path, IDENTITY)
    ledger.append(MEASUREMENT)
    ledger.append(replace(MEASUREMENT, repeat=1))
    text = ledger.path.read_bytes()
    ledger.path.write_bytes(text[:kept])
    again = Ledger(tmp_path, IDENTITY)
    assert again.measurements == ([MEASUREMENT] if kept < 0 else [])
    again.append(replace(MEASUREMENT, repeat=2))
    assert [line.repeat for line in Ledger(tmp_path, IDENTITY).measurements][-1] == 2


def test_a_line_that_is_no_measurement_is_one_line(tmp_path: Path):
    ledger = Ledger(tmp_path, IDENTITY)
    with ledger.path.open("a") as file:
        file.write('{"repeat": 0}\n')
    with pytest.raises(ValueError, match=r"race\.jsonl:2 is no line of a ledger: it has no is_final, "):
        Ledger(tmp_path, IDENTITY)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"goal": "the time of 5 steps"}, "goal samples a second in place of the time of 5 steps"),
        ({"torch": "2.11.0"}, "torch 2.13.0 in place of 2.11.0"),
        (
            {"device": "NVIDIA H200", "config_digest": "3d2c1b0a"},
            "device NVIDIA H100 in place of NVIDIA H200, config digest 0a1b2c3d in place of 3d2c1b0a",
        ),
        ({"base": []}, "base model=simple_cnn in place of none"),
    ],
)
def test_the_ledger_of_another_race_is_refused_by_what_differs(other: dict, difference: str, tmp_path: Path):
    Ledger(tmp_path, IDENTITY).append(MEASUREMENT)
    with pytest.raises(ValueError, match=rf"race\.jsonl is of another race: {difference}$"):
        Ledger(tmp_path, replace(IDENTITY, **other))
    assert read_measurements(tmp_path) == [MEASUREMENT]


def test_the_ledger_of_an_older_version_is_one_line(tmp_path: Path):
    ledger = Ledger(tmp_path, IDENTITY)
    earlier = {name: value for name, value in vars(IDENTITY).items() if name not in ("device", "torch")}
    ledger.path.write_text(json.dumps(earlier) + "\n")
    with pytest.raises(ValueError, match=r"race\.jsonl:1 is no line of a ledger: it has no device, torch$"):
        Ledger(tmp_path, IDENTITY)


def test_the_name_of_a_new_ledger_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode)))
    ledger = Ledger(tmp_path, IDENTITY)
    assert synced == [False, True]
    ledger.append(MEASUREMENT)
    Ledger(tmp_path, IDENTITY)
    assert synced == [False, True, False]
