"""Many runs at once: those of the run directories below a folder, or of one file of measurements.

A file of measurements, `NAME.jsonl`, has a line `{"row": {...}, "epochs": [{...}, ...]}` for each run. Fields that are
null are left out.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trainkit.formatting import clean
from trainkit.results.epoch import EpochRecord
from trainkit.results.files import ROW_FILE, read_epochs, read_row
from trainkit.results.row import Row
from trainkit.results.typed import parse

SUFFIX = ".jsonl"
Complain = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """A row with its epoch records, and where both were read: a directory, or a file with the number of a line."""

    row: Row
    epochs: list[EpochRecord]
    source: str


def refuse_unreadable(complaint: str) -> None:
    raise ValueError(complaint)


def read_runs(*paths: Path | str, complain: Complain = refuse_unreadable) -> list[Run]:
    """Read all runs in or below directories and in files of measurements, each once, in the order of their paths.

    Runs that share a `run_id`, such as those of two sweeps of one name, get their source as `run_id`.
    Calls `complain` with one line that names the file for one that is no row or no measurement, and leaves it out; by
    default raises ValueError.
    """
    runs: dict[str, Run] = {}
    for path in map(Path, paths):
        for run in _read_path(path, complain):
            runs.setdefault(str(Path(run.source).resolve()), run)
    counts = Counter(run.row.run_id for run in runs.values())
    unique = []
    for run in runs.values():
        if counts[run.row.run_id] > 1:
            run = replace(run, row=replace(run.row, run_id=run.source))
        unique.append(run)
    return unique


def read_rows(path: Path | str, complain: Complain = refuse_unreadable) -> list[Row]:
    """Read the rows in or below a directory, or in a file of measurements, in the order of their paths. `complain` is
    that of `read_runs`."""
    return [run.row for run in _read_path(Path(path), complain)]


def has_rows(path: Path) -> bool:
    """Whether there is a row in or below a directory, or in a file of measurements."""
    if path.suffix == SUFFIX:
        return path.is_file() and path.stat().st_size > 0
    return next(path.rglob(ROW_FILE), None) is not None


def write_measurements(path: Path, runs: Iterable[Run]) -> None:
    """Write runs as a file of measurements."""
    with path.open("w", encoding="utf-8") as file:
        for run in runs:
            epochs = [_without_nulls(asdict(record)) for record in run.epochs]
            file.write(json.dumps({"row": _without_nulls(asdict(run.row)), "epochs": epochs}) + "\n")


def _without_nulls(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _read_path(path: Path, complain: Complain) -> Iterator[Run]:
    if path.suffix == SUFFIX:
        yield from _read_measurements(path, complain)
        return
    for file in sorted(path.rglob(ROW_FILE)):
        try:
            row = read_row(file.parent)
            epochs = list(read_epochs(file.parent))
        except ValueError as error:
            complain(clean(str(error)))
            continue
        if row is not None:
            yield Run(row, epochs, str(file.parent))


def _read_measurements(path: Path, complain: Complain) -> Iterator[Run]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            source = f"{path}:{number}"
            try:
                values = json.loads(line)
                row: Row = parse(Row, values["row"], "row")
                epochs: list[EpochRecord] = parse(list[EpochRecord], values.get("epochs", []), "epochs")
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                complain(f"{source} is not a measurement: {' '.join(str(error).split())}")
                continue
            yield Run(row, epochs, source)
