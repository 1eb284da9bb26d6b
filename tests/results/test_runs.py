"""Runs are read from run directories and from files of measurements."""

import json
from dataclasses import asdict

import pytest

from tests.sweeps import epochs_of, gpu_sweep
from trainkit.results.files import append_epoch, write_row
from trainkit.results.runs import Run, has_rows, read_rows, read_runs, write_measurements


@pytest.fixture
def runs() -> list[Run]:
    runs = []
    for row in gpu_sweep():
        runs.append(Run(row, epochs_of(row, num_epochs=2), source=""))
    return runs


def test_measurements_read_back_what_run_directories_hold(tmp_path, runs):
    for number, run in enumerate(runs):
        run_dir = tmp_path / f"{number:02}"
        run_dir.mkdir()
        write_row(run_dir, run.row)
        for record in run.epochs:
            append_epoch(run_dir, record)
    packed = tmp_path / "packed.jsonl"
    write_measurements(packed, read_runs(tmp_path))
    read = read_runs(packed)
    assert [run.row for run in read] == [run.row for run in runs]
    assert [run.epochs for run in read] == [run.epochs for run in runs]
    assert read_rows(packed) == read_rows(tmp_path)


def test_null_fields_are_left_out_of_measurements(tmp_path, runs):
    write_measurements(tmp_path / "packed.jsonl", runs)
    assert None in asdict(runs[0].row).values()
    for line in (tmp_path / "packed.jsonl").read_text().splitlines():
        assert None not in json.loads(line)["row"].values()


def test_runs_of_one_run_id_are_told_apart_by_their_source(tmp_path, runs):
    packed = tmp_path / "packed.jsonl"
    write_measurements(packed, [runs[0], runs[0], runs[1]])
    assert [run.row.run_id for run in read_runs(packed)] == [f"{packed}:1", f"{packed}:2", runs[1].row.run_id]


def test_a_path_that_is_given_twice_is_read_once(tmp_path, runs):
    packed = tmp_path / "packed.jsonl"
    write_measurements(packed, runs)
    assert len(read_runs(packed, packed)) == len(runs)


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"row": {"run_id": 1, "status": "ok"}}', '{"row": {}, "epochs": 3}']
)
def test_a_line_that_is_no_measurement_is_named(tmp_path, line):
    packed = tmp_path / "packed.jsonl"
    packed.write_text(line + "\n")
    with pytest.raises(ValueError, match=r"packed\.jsonl:1 is not a measurement: ") as caught:
        read_rows(packed)
    assert len(str(caught.value).splitlines()) == 1


def test_has_rows(tmp_path, runs):
    assert not has_rows(tmp_path)
    assert not has_rows(tmp_path / "packed.jsonl")
    write_measurements(tmp_path / "packed.jsonl", runs)
    assert has_rows(tmp_path / "packed.jsonl")
