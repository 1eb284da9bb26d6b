"""scripts/report.py as a process of its own."""

import json
import os
import re
import subprocess
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests import forked
from tests.conftest import ROOT
from tests.report.conftest import line_of
from tests.sweeps import EPOCH, ROW, changed, five_modes, gpu_sweep
from trainkit.analysis.comparison import compare
from trainkit.report.csv_file import csv_comparison
from trainkit.results.files import append_epoch, read_epochs, write_row
from trainkit.results.runs import read_rows, read_runs, write_measurements

BAD_VALUES = (("killed", 1), ("ok", '"12"'), ("ok", "NaN"))


def script(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return forked.python(ROOT / "scripts" / "report.py", *argv, cwd=cwd)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for number, measured in enumerate(five_modes()):
        run_dir = tmp_path / "runs" / "sweep" / f"{number:03d}"
        run_dir.mkdir(parents=True)
        write_row(run_dir, measured)
    return tmp_path / "runs"


def test_the_script_prints_the_comparison_of_all_directories_in_a_width_that_cuts_nothing(sweep):
    ended = script(sweep / "sweep" / "000", sweep / "sweep" / "001", cwd=sweep)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "default" in ended.stdout
    assert "1.10x" in ended.stdout
    assert "1 x NVIDIA H100, torch 2.11.0, triton 3.6.0, CUDA 13.0, Python 3.12.3, lightning 2.6.6\n" in ended.stdout


def test_the_script_prints_markdown(sweep):
    ended = script("--markdown", sweep, cwd=sweep)
    assert ended.returncode == 0
    assert "| default | 1.10x (1.09-1.11) |" in ended.stdout


def test_a_row_given_twice_is_one_row(sweep):
    ended = script("--markdown", sweep, sweep / "sweep", "sweep/../sweep/001", sweep, cwd=sweep)
    assert ended.stdout == script("--markdown", sweep, cwd=sweep).stdout


def test_the_script_writes_the_report_beside_the_rows_and_advises_for_the_steps_planned(sweep):
    ended = script(sweep, "--steps", "10,000", cwd=sweep)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "for a run of 10,000 steps" in ended.stdout
    assert ended.stdout.splitlines()[-1] == f"written: {sweep / 'report.md'} {sweep / 'report.html'}"
    assert "| default | 1.10x (1.09-1.11) |" in (sweep / "report.md").read_text()
    assert "<svg" in (sweep / "report.html").read_text()
    (sweep / "diagnosis.json").write_text('{"model": 3}')
    wrong = script(sweep, cwd=sweep)
    complaint = f"report: {sweep / 'diagnosis.json'} is not a diagnosis: it has no"
    assert wrong.returncode == 2
    assert re.fullmatch(f"{complaint} .*; it is left out of the page", wrong.stderr.strip())
    wrong = script(sweep, "--steps", "0", cwd=sweep)
    assert (wrong.returncode, wrong.stderr.splitlines()[-1]) == (
        2, "report.py: error: argument --steps: 0: expected a whole number from 1 to 999,999,999,999",
    )  # fmt: skip


@pytest.mark.parametrize(("times", "status", "says"), [(1.2, 1, "slower"), (0.8, 0, "faster"), (1.0, 0, "no measurab")])
def test_the_script_against_a_baseline_exits_1_where_a_setting_got_slower(times, status, says, tmp_path):
    for name, by in (("then", 1.0), ("now", times)):
        for measured in changed(default=by):
            run_dir = tmp_path / name / measured.run_id
            run_dir.mkdir(parents=True)
            write_row(run_dir, measured)
    ended = script("now", "--against", "then", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (status, "")
    assert says in line_of(ended.stdout, "default")
    assert not list(tmp_path.rglob("report.*"))  # a check of CI writes nothing


def test_the_script_against_other_work_checks_nothing_and_says_so(sweep, tmp_path):
    write_row(tmp_path, replace(ROW, model="gpt2"))
    ended = script(tmp_path / "row.json", "--against", sweep, cwd=tmp_path)
    assert ended.returncode == 2
    ended = script(sweep, "--against", tmp_path / "nothing", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (2, f"report: no rows in or below {tmp_path / 'nothing'}\n")


@pytest.fixture
def measured_by_two_versions(tmp_path: Path) -> tuple[Path, Path]:
    """Committed rows of schema version 2, and the same rows with steps half as long as if measured by version 3."""
    old = [run for run in read_runs(ROOT / "measurements" / "modes-h100.jsonl") if run.row.status == "ok"]
    new = []
    for run in old:
        assert run.row.schema_version == 2
        assert run.row.step_time_ms_p50 is not None
        row = replace(run.row, schema_version=3, step_time_ms_p50=run.row.step_time_ms_p50 / 2)
        new.append(replace(run, row=row))
    write_measurements(tmp_path / "old.jsonl", old)
    write_measurements(tmp_path / "new.jsonl", new)
    return tmp_path / "old.jsonl", tmp_path / "new.jsonl"


def test_rows_of_two_schema_versions_are_compared_apart_and_the_report_says_why(measured_by_two_versions, tmp_path):
    old, new = measured_by_two_versions
    alone = [script("--markdown", path, cwd=tmp_path).stdout for path in (old, new)]
    assert "schema version" not in "".join(alone)
    both = script("--markdown", new, old, cwd=tmp_path)
    assert (both.returncode, both.stderr) == (0, "")
    for text in alone:
        for line in text.splitlines():
            if line.startswith("| "):
                assert line in both.stdout.splitlines()
    assert both.stdout.count(", schema version 2**") == both.stdout.count(", schema version 3**") == 1
    count = len(read_rows(old))
    note = (
        f"Not compared with version 3: {count} runs of schema version 2 (since version 3 a training step holds none of "
        "Lightning's loop). Measure again to compare."
    )
    assert both.stdout.count(note) == 1
    printed = script(new, old, cwd=tmp_path)
    assert note in " ".join(printed.stdout.split())
    assert note.replace("'", "&#39;") in (tmp_path / "report.html").read_text()


def test_the_script_against_rows_of_another_schema_version_says_which_and_checks_nothing(
    measured_by_two_versions, tmp_path
):
    old, new = measured_by_two_versions
    ended = script(new, "--against", old, cwd=tmp_path)
    complaint = "no setting of the baseline was measured again with its schema version: nothing was checked"
    assert (ended.returncode, ended.stderr) == (2, f"report: {complaint}\n")
    for mode, count in Counter(row.compile_mode for row in read_rows(old)).items():
        runs = f"{count} runs of schema version"
        assert f"Not compared: {mode}: {runs} 3 now, {runs} 2 in the baseline\n" in ended.stdout
    assert " ".join(ended.stdout.split()).endswith(
        "Schema versions do not compare: since version 3 a training step holds none of Lightning's loop. Measure the "
        "older runs again, with this version of trainkit."
    )
    assert script(old, "--against", old, cwd=tmp_path).returncode == 0


def test_runs_of_one_name_in_two_places_stay_apart(tmp_path):
    for place, accuracy in (("x", 0.9), ("y", 0.2)):
        run_dir = tmp_path / place / "sweep" / "000-eager"
        run_dir.mkdir(parents=True)
        write_row(run_dir, replace(ROW, overrides=[f"optimizer.lr={accuracy}"]))
        append_epoch(run_dir, replace(EPOCH, val_accuracy=accuracy))
        append_epoch(run_dir, replace(EPOCH, epoch=3, val_accuracy=accuracy + 0.01))
    with (tmp_path / "y" / "sweep" / "000-eager" / "epochs.jsonl").open("a") as file:
        file.write('{"epoch": 4, "train_ti')  # what a kill leaves of a line
    ended = script("x", "y", "x/sweep", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    page = (tmp_path / "x" / "report.html").read_text()
    assert "0.9100" in page
    assert "0.2100" in page
    append_epoch(tmp_path / "y" / "sweep" / "000-eager", EPOCH)
    assert len(list(read_epochs(tmp_path / "y" / "sweep" / "000-eager"))) == 3


def test_the_script_against_a_baseline_exits_1_where_a_setting_fails_now(tmp_path):
    for name in ("then", "now"):
        for measured in changed():
            failed = name == "now" and measured.compile_mode == "default"
            run_dir = tmp_path / name / measured.run_id
            run_dir.mkdir(parents=True)
            write_row(run_dir, replace(measured, status="compile_error", error="boom") if failed else measured)
    ended = script("now", "--against", "then", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "Failed now: default: compile_error: boom" in ended.stdout
    assert script("now", "--against", "then", "--steps", "5", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("path", ["empty", "missing"])
def test_a_path_without_rows_is_one_line_and_status_2(sweep, path):
    (sweep / "empty").mkdir()
    ended = script(sweep, path, cwd=sweep)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"report: no rows in or below {path}\n"


@pytest.mark.parametrize(
    "text",
    ["{", "{}", "[1]", *(f'{{"run_id": "a", "status": "{s}", "step_time_ms_p50": {t}}}' for s, t in BAD_VALUES)],
)
def test_a_file_that_is_no_row_is_one_line_and_status_2(tmp_path, text):
    (tmp_path / "row.json").write_text(text)
    ended = script(tmp_path, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    left_out, nothing_left = ended.stderr.splitlines()
    assert re.fullmatch(rf"report: {tmp_path / 'row.json'} is not a row: .*; it is left out", left_out)
    assert nothing_left == "report: no file that was given is a row"


def write_hostile_rows(folder: Path) -> int:
    """Files that are no rows. Returns their number."""
    values = asdict(gpu_sweep(1)[0])
    texts = [
        "[" * 100_000,
        '{"a":' * 5_000,
        json.dumps(values | {"num_steps": int("9" * 4000)}),
        json.dumps(values | {"overrides": ["a=b"] * 100_000}),
        json.dumps(values | {"trainer_kwargs": {"a": []}}).replace('{"a": []}', '{"a": ' + "[" * 60 + "]" * 60 + "}"),
        json.dumps(values | {"world_size": 0}),
    ]
    for number, text in enumerate(texts):
        (folder / f"hostile{number}").mkdir()
        (folder / f"hostile{number}" / "row.json").write_text(text)
    (folder / "fifo").mkdir()
    os.mkfifo(folder / "fifo" / "row.json")
    (folder / "folder" / "row.json").mkdir(parents=True)
    (folder / "epochs").mkdir()
    write_row(folder / "epochs", gpu_sweep(1)[0])
    os.mkfifo(folder / "epochs" / "epochs.jsonl")
    return len(texts) + 3


def test_hostile_files_are_one_line_each_and_the_other_rows_are_compared(sweep):
    plain = script(sweep, "--markdown", cwd=sweep)
    number = write_hostile_rows(sweep)
    ended = script(sweep, "--markdown", cwd=sweep)
    lines = ended.stderr.splitlines()
    assert (ended.returncode, len(lines)) == (0, number), ended.stderr
    for line in lines:
        assert re.fullmatch(r"report: \S+ (is not a row|has no epoch records): .*; it is left out", line)
    assert ended.stdout == plain.stdout


def test_pack_writes_the_runs_into_one_file(sweep, tmp_path):
    packed = tmp_path / "packed.jsonl"
    ended = script(sweep, "--pack", packed, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, f"written: {packed} ({len(five_modes())} runs)\n")
    times_ms = [row.step_time_ms_p50 for row in read_rows(packed)]
    assert times_ms == [row.step_time_ms_p50 for row in read_rows(sweep)]


def test_csv_writes_a_line_for_each_setting_and_nothing_else(sweep, tmp_path):
    file = tmp_path / "settings.csv"
    before = set(sweep.rglob("*"))
    ended = script(sweep, "--csv", file, "--steps", "1000", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, f"written: {file}\n")
    assert set(sweep.rglob("*")) == before
    assert file.read_text() == csv_comparison(compare(read_rows(sweep), 1000))
    ended = script(sweep, "--csv", tmp_path / "missing" / "settings.csv", cwd=tmp_path)
    complaint = f"report: --csv = {tmp_path / 'missing' / 'settings.csv'}: expected a file in an existing folder\n"
    assert (ended.returncode, ended.stderr) == (2, complaint)
