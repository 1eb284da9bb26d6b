"""The files of a run directory: `row.json` and `epochs.jsonl`."""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from filelock import FileLock

from trainkit.config.errors import ConfigError
from trainkit.results.epoch import EpochRecord
from trainkit.results.ranks import FOLDER, LOCK, Cause
from trainkit.results.row import Row
from trainkit.results.typed import parse, parse_text, read_bounded
from trainkit.results.whole_file import replace_text

ROW_FILE = "row.json"
EPOCHS_FILE = "epochs.jsonl"
RUN_LOCK = ".lock"  # of the run that is in the directory; in a sweep's, of the sweep


class RunFileError(OSError):
    """A file of a run could not be written: one line with its path, the reason and the way out."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}; make room, or choose another hydra.run.dir"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A context whose OSErrors are RunFileErrors about the path."""
    try:
        yield
    except OSError as error:
        raise RunFileError(error.errno, error.strerror, str(path)) from error


def write_row(run_dir: Path | str, row: Row) -> Path:
    """Write `<run_dir>/row.json` atomically: a reader sees the previous row or the new one. Returns its path.

    Raises RunFileError if that fails.
    """
    path = Path(run_dir) / ROW_FILE
    with _writing(path):
        replace_text(path, json.dumps(asdict(row), indent=2) + "\n")
    return path


def read_row(run_dir: Path | str) -> Row | None:
    """The row of a run directory, or None without one. Fields of a newer schema are ignored.

    Raises ValueError, one line that names the file, for a file that is not a row.
    """
    path = Path(run_dir) / ROW_FILE
    if not path.exists():
        return None
    try:
        row: Row = parse_text(Row, read_bounded(path), "it")
    except ValueError as error:
        raise ValueError(" ".join(f"{path} is not a row: {error}".split())) from error
    return row


def append_epoch(run_dir: Path | str, record: EpochRecord) -> None:
    """Append a line to `<run_dir>/epochs.jsonl` and flush it to the disk. Raises RunFileError if that fails."""
    path = Path(run_dir) / EPOCHS_FILE
    line = json.dumps(asdict(record)) + "\n"
    with _writing(path):
        if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):
            line = "\n" + line  # a kill has cut off the last line
        with path.open("a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def read_epochs(run_dir: Path | str) -> Iterator[EpochRecord]:
    """The epoch records of a run directory, oldest first. A line that a kill has cut off is skipped.

    Raises ValueError, one line that names the file, for a line that is no epoch record.
    """
    path = Path(run_dir) / EPOCHS_FILE
    if not path.exists():
        return
    try:
        lines = read_bounded(path).splitlines()
    except ValueError as error:
        raise ValueError(f"{path} has no epoch records: {error}") from error
    for line in lines:
        try:
            values = json.loads(line)
        except json.JSONDecodeError:
            continue
        except (ValueError, RecursionError) as error:  # a number of thousands of digits
            raise ValueError(f"{path} has a line that is not an epoch record: {error}") from error
        try:
            yield parse(EpochRecord, values, "it")
        except ValueError as error:
            raise ValueError(f"{path} has a line that is not an epoch record: {error}") from error


def keep_epochs(run_dir: Path | str, before: int) -> None:
    """Drop the records of epochs from `before` on: a run that goes on from there trains them again."""
    path = Path(run_dir) / EPOCHS_FILE
    if not path.exists():
        return
    earlier = [record for record in read_epochs(run_dir) if record.epoch < before]
    with _writing(path):
        replace_text(path, "".join(json.dumps(asdict(record)) + "\n" for record in earlier))


def set_aside(run_dir: Path | str, names: Iterable[str] = (ROW_FILE, EPOCHS_FILE)) -> None:
    """Rename the files of an earlier run in the same directory to `row.1.json`, `epochs.1.jsonl`, and so on.

    A row that a sweep has written of a run that had not started is no earlier run.
    """
    if _is_planned(run_dir):
        return
    for path in [Path(run_dir, name) for name in names]:
        if path.exists():
            numbers = [int(older.suffixes[0][1:]) for older in path.parent.glob(f"{path.stem}.[0-9]*{path.suffix}")]
            path.rename(path.with_suffix(f".{max(numbers, default=0) + 1}{path.suffix}"))


def _is_planned(run_dir: Path | str) -> bool:
    try:
        row = read_row(run_dir)
    except ValueError:  # a file of another kind
        return False
    return row is not None and row.status == "interrupted" and row.device_name is None


@contextmanager
def only_run_in(run_dir: Path | str) -> Iterator[None]:
    """A context in which no other process runs in the directory. Raises ConfigError if one does.

    The system ends the lock with the process, however that ends. The processes that it forks do not hold it.
    """
    Path(run_dir).mkdir(parents=True, exist_ok=True)
    with Path(run_dir, RUN_LOCK).open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            way_out = "wait for it, or choose another hydra.run.dir"
            raise ConfigError(f"hydra.run.dir = {run_dir}: another run is in it; {way_out}") from None
        yield


def fail_row(run_dir: Path | str, cause: Cause, request: Row) -> None:
    """Set status and error of a run that has not ended `ok`, from any rank. `request` is its row if it has none yet."""
    with _locked(run_dir):
        row = read_row(run_dir) or request
        if row.status != "ok":
            write_row(run_dir, replace(row, status=cause.status, error=cause.reason))


def end_row(run_dir: Path | str, row: Row) -> None:
    """Write the last row of a run, from the rank that measured it."""
    with _locked(run_dir):
        write_row(run_dir, row)


@contextmanager
def _locked(run_dir: Path | str) -> Iterator[None]:
    """A context in which no other rank changes the row. One process alone needs no lock."""
    folder = Path(run_dir, FOLDER)
    if not folder.exists():
        yield
        return
    with FileLock(folder / LOCK):
        yield
