"""The report command: compares measured rows with each other, or with the rows of a baseline."""

import sys
from pathlib import Path

from trainkit.analysis.comparison import Comparison, compare
from trainkit.analysis.regressions import find_changes
from trainkit.diagnosis.findings import read_diagnoses
from trainkit.formatting import clean
from trainkit.report.csv_file import csv_comparison
from trainkit.report.markdown import markdown_comparison
from trainkit.report.page import write_report
from trainkit.report.terminal import print_changes, print_comparison
from trainkit.report.two_sweeps import TwoSweeps, two_sweeps
from trainkit.results.row import Row
from trainkit.results.runs import Run, has_rows, read_runs, write_measurements


def report_comparison(paths: list[Path], folder: Path | None, num_planned_steps: int | None) -> int:
    """Print the comparison of the runs below these paths and write it to a folder, by default beside the first runs.

    The page of two paths shows them side by side too. Returns the exit status: 2 if a path has no runs, or if a
    diagnosis beside them cannot be read.
    """
    try:
        runs = _read_runs(paths)
    except ValueError as error:
        return _complain(str(error))
    comparison = compare([run.row for run in runs], num_planned_steps)
    print_comparison(comparison)
    beside_runs = _folder_of(paths[0])
    pair = None
    if len(paths) == 2:
        pair = two_sweeps((paths[0].stem, paths[1].stem), _read_rows(paths[:1]), _read_rows(paths[1:]))
    return _write_comparison(folder or beside_runs, comparison, runs, beside_runs, pair)


def report_markdown(paths: list[Path], num_planned_steps: int | None) -> int:
    """Print the comparison as Markdown. Returns the exit status: 2 if a path has no runs."""
    try:
        rows = _read_rows(paths)
    except ValueError as error:
        return _complain(str(error))
    print(markdown_comparison(compare(rows, num_planned_steps)), end="")
    return 0


def report_csv(paths: list[Path], file: Path, num_planned_steps: int | None) -> int:
    """Write the comparison as comma-separated values.

    Returns the exit status: 2 if a path has no runs, or if the file has no folder.
    """
    if file.is_dir() or not file.parent.is_dir():
        return _complain(f"--csv = {file}: expected a file in an existing folder")
    try:
        rows = _read_rows(paths)
    except ValueError as error:
        return _complain(str(error))
    file.write_text(csv_comparison(compare(rows, num_planned_steps)), encoding="utf-8")
    print(f"written: {file}")
    return 0


def report_changes(paths: list[Path], baseline: Path) -> int:
    """Print the changes since a baseline.

    Returns the exit status: 1 if a candidate failed, got slower or uses more memory, 2 if nothing was measured again.
    """
    try:
        changes = find_changes(_read_rows(paths), _read_rows([baseline]))
    except ValueError as error:
        return _complain(str(error))
    print_changes(changes)
    if not changes.changes and not changes.failed:
        again = "again"
        if len(changes.schema_versions) > 1:
            again = "again with its schema version"
        return _complain(f"no setting of the baseline was measured {again}: nothing was checked")
    worse = any(change.slower or change.uses_more_memory for change in changes.changes)
    if worse or changes.failed:
        return 1
    return 0


def pack_runs(paths: list[Path], file: Path) -> int:
    """Write the runs below these paths as a file of measurements. Returns the exit status: 2 if a path has no runs."""
    try:
        runs = _read_runs(paths)
    except ValueError as error:
        return _complain(str(error))
    write_measurements(file, runs)
    print(f"written: {file} ({len(runs)} runs)")
    return 0


def _write_comparison(
    folder: Path, comparison: Comparison, runs: list[Run], diagnosed: Path, pair: TwoSweeps | None
) -> int:
    diagnoses, complaints = read_diagnoses(diagnosed)
    epochs = {run.row.run_id: run.epochs for run in runs}
    folder.mkdir(parents=True, exist_ok=True)
    written = write_report(folder, comparison, epochs, diagnoses, pair)
    print(f"written: {' '.join(map(str, written))}")
    for complaint in complaints:
        _complain(f"{complaint}; it is left out of the page")
    return 2 if complaints else 0


def _read_runs(paths: list[Path]) -> list[Run]:
    for path in paths:
        if not has_rows(path):
            raise ValueError(f"no rows in or below {path}")
    runs = read_runs(*paths, complain=_leave_out)
    if not runs:
        raise ValueError("no file that was given is a row")
    return runs


def _leave_out(complaint: str) -> None:
    _complain(f"{complaint}; it is left out")


def _read_rows(paths: list[Path]) -> list[Row]:
    return [run.row for run in _read_runs(paths)]


def _folder_of(path: Path) -> Path:
    """The directory of a run or sweep, or of a file."""
    if path.is_dir():
        return path
    return path.parent


def _complain(complaint: str) -> int:
    print(f"report: {clean(complaint)}", file=sys.stderr)
    return 2
