"""Rows and epoch records survive the disk, old ones too; a file that is none is one line."""

import json
from dataclasses import FrozenInstanceError, asdict

import pytest

from trainkit.results.facts import ExpectedLatency, GraphBreak, Region, ShapeLatency, Stage
from trainkit.results.files import read_epochs, read_row, write_row
from trainkit.results.row import SCHEMA_CHANGES, SCHEMA_VERSION, Row

ROW = Row(
    run_id="sweep/0",
    status="ok",
    graph_breaks=[GraphBreak("net.py", 7, "print")],
    recompile_shapes=[[[2, 3], [2]], None],
    compiled_parts=[Region("features", num_graphs=1, reused=False, num_calls=4)],
    latency_by_shape=[ShapeLatency([1, 3], 9, 7.25, 8.0, 9.0)],
    chain=[Stage(call_frac=1.0, num_calls=9, expected_ms=[ExpectedLatency([1, 3], 5.5, 5.0)])],
)


def test_nested_facts_are_read_back_as_they_were_written(tmp_path):
    path = write_row(tmp_path, ROW)
    assert read_row(tmp_path) == ROW
    assert json.loads(path.read_text())["chain"][0]["expected_ms"] == [
        {"shape": [1, 3], "time_ms": 5.5, "time_ms_p50": 5.0}
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["row.json"]


def test_rows_are_frozen():
    with pytest.raises(FrozenInstanceError):
        ROW.status = "failed"


def test_a_row_with_fewer_and_with_unknown_fields_is_read(tmp_path):
    region = {"name": "features", "mode": "default", "num_graphs": 1, "num_calls": 4, "weather": "fine"}
    values = {"run_id": "r", "status": "ok", "compiled_parts": [region], "weather": "fine"}
    (tmp_path / "row.json").write_text(json.dumps(values))
    assert read_row(tmp_path) == Row(
        "r", "ok", compiled_parts=[Region("features", "default", num_graphs=1, num_calls=4)]
    )


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_a_row_of_an_earlier_schema_keeps_its_version(version, tmp_path):
    values = {"run_id": "r", "status": "ok", "schema_version": version, "step_time_ms_p50": 3.5}
    (tmp_path / "row.json").write_text(json.dumps(values))
    assert read_row(tmp_path) == Row("r", "ok", schema_version=version, step_time_ms_p50=3.5)
    assert set(SCHEMA_CHANGES) == set(range(2, SCHEMA_VERSION + 1))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([], r"it = []: expected Row"),
        ({"status": "ok"}, "it has no run_id"),
        ({"run_id": "r", "status": "fine"}, "status = fine: expected one of ok, "),
        (asdict(ROW) | {"step_time_ms": float("nan")}, "step_time_ms = nan: expected float"),
        (asdict(ROW) | {"num_steps": "3"}, "num_steps = 3: expected int"),
        (asdict(ROW) | {"chain": [{"expected_ms": [5.5]}]}, "expected_ms = 5.5: expected ExpectedLatency"),
    ],
)
def test_a_file_that_is_not_a_row_is_one_line_with_its_name(values, complaint, tmp_path):
    path = tmp_path / "row.json"
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError) as refused:
        read_row(tmp_path)
    assert str(refused.value).startswith(f"{path} is not a row: {complaint}")
    assert "\n" not in str(refused.value)


def test_a_line_that_is_no_epoch_record_names_the_file(tmp_path):
    (tmp_path / "epochs.jsonl").write_text('{"epoch": 0}\n')
    with pytest.raises(ValueError, match=r"epochs\.jsonl has a line that is not an epoch record: it has no "):
        list(read_epochs(tmp_path))
