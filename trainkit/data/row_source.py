"""The rows of a table in files here, or in a split of a data set of the hub."""

import csv
import hashlib
import re
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

import datasets

from trainkit.data.location import (
    TABLE_READERS,
    TRAIN_NAMES,
    DataLocation,
    first_split,
    load_splits,
    missing_complaints,
    read_text,
    split_word,
    unreadable_complaints,
)
from trainkit.data.rows import SURPLUS, Columns, RawTable, Rows, add_rows

MOST_LEVELS = 100
JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)  # a string, or a bracket outside of one
TABLE_WAY_OUT = "give a csv, tsv, json or parquet file, a folder of train.* and dev.*, or owner/name of the hub"


@dataclass(frozen=True)
class RowSource:
    """The rows of a split, not read yet: in files, or loaded from the hub."""

    location: DataLocation
    columns: Columns
    files: tuple[Path, ...] = ()
    hub_split: datasets.Dataset | None = None

    @property
    def fingerprint(self) -> tuple[str, ...]:
        """Changes with the content and the format alone: hashes of the files, or the hub's own fingerprint."""
        if self.hub_split is not None:
            return (self.hub_split._fingerprint,)
        return tuple(file.suffix + hashlib.sha256(file.read_bytes()).hexdigest() for file in self.files)

    def read(self, scratch: Path) -> Rows:
        """All rows; `scratch` is an empty folder. Raises ConfigError naming the first row that cannot be used."""
        rows = Rows()
        if self.hub_split is not None:
            row_name = f"{self.location.path} ({self.hub_split.split}), row"
            table = RawTable(self.location, self.hub_split, row_name, first_number=1, is_csv=False)
            add_rows(rows, table, self.columns)
        for file in self.files:
            add_rows(rows, self._load_file(file, scratch), self.columns)
        return rows

    def _load_file(self, file: Path, scratch: Path) -> RawTable:
        reader = TABLE_READERS[file.suffix]
        settings: dict[str, Any] = {}
        row_name, first_number = f"{file}, row", 1
        if reader != "parquet":
            text = read_text(self.location, file)
            has_header = reader == "csv" and self.columns.names is None
            self._check_not_empty(file, text, has_header)
        if reader == "json" and nests_too_deep(text):
            raise self.location.error(f"{file} nests more than {MOST_LEVELS} levels deep", "fix it or leave it out")
        if reader == "csv":
            settings = csv_settings(text, file.suffix, self.columns)
            if settings["quoting"] == csv.QUOTE_NONE:  # otherwise a field may span lines
                row_name = f"{file}, line"
                first_number = 2 if has_header else 1
        # Always read again: the library recognises a file by its time, and would keep a copy.
        splits = load_splits(
            DataLocation(self.location.setting, str(file), "fix it or leave it out"), reader,
            data_files={"train": escape(str(file))}, cache_dir=str(scratch), keep_in_memory=True, **settings,
        )  # fmt: skip
        any_csv = any(TABLE_READERS[other.suffix] == "csv" for other in self.files)
        return RawTable(self.location, splits["train"], row_name, first_number, is_csv=any_csv)

    def _check_not_empty(self, file: Path, text: str, has_header: bool) -> None:
        content = text.partition("\n")[2] if has_header else text
        if not content.strip():
            raise self.location.error(f"{file} has no rows")


def find_row_source(
    location: DataLocation, names: tuple[str, ...], *, subset: str | None, columns: Columns, cache_dir: Path
) -> RowSource | None:
    """The first split of these names at a location; None if it has none. A single file is a split for training."""
    if location.is_on_hub:
        splits = load_splits(location, location.path, subset, cache_dir=str(cache_dir / "datasets"))
        hub_split = first_split(splits, names)
        if hub_split is None:
            return None
        return RowSource(location, columns, hub_split=hub_split)
    files = _find_files(location.local_path, names)
    if not files:
        return None
    return RowSource(location, columns, tuple(files))


def table_path_complaints(location: DataLocation) -> list[str]:
    """Complaints about a location that need no file to be read."""
    complaints = missing_complaints(location, "table")
    if complaints or location.is_on_hub:
        return complaints
    path = location.local_path
    if path.is_dir():
        return unreadable_complaints(location, _table_files(path))
    if path.suffix not in TABLE_READERS:
        return [location.complaint(f"is none of {', '.join(TABLE_READERS)}")]
    return unreadable_complaints(location, [path])


def nests_too_deep(text: str) -> bool:
    """Whether brackets of a JSON text, or of its lines, nest deeper than MOST_LEVELS. The library's reader ends the
    process for a text that nests 100,000 deep."""
    depth = 0
    for token in JSON_TOKEN.finditer(text):
        first = token[0][0]
        if first in "[{":
            depth += 1
            if depth > MOST_LEVELS:
                return True
        elif first in "]}":
            depth -= 1
    return False


def _find_files(path: Path, names: tuple[str, ...]) -> list[Path]:
    if not path.is_dir():
        return [path] if TRAIN_NAMES[0] in names else []
    files_by_split: dict[str, list[Path]] = {}
    for file in _table_files(path):
        files_by_split.setdefault(split_word(file.name), []).append(file)
    return first_split(files_by_split, names) or []


def _table_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in TABLE_READERS)


def csv_settings(text: str, suffix: str, columns: Columns) -> dict[str, Any]:
    """Settings of the library's csv reader: each field is read as the string that it is, `NA` and `007` included."""
    delimiter = columns.delimiter
    if delimiter is None:
        delimiter = "," if suffix == ".csv" else "\t"
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    dialect: dict[str, Any] = {"delimiter": delimiter, "quoting": quoting}
    names = columns.names
    has_header = names is None
    if names is None:
        lines = text.removeprefix("\ufeff").splitlines()
        names = tuple(next(csv.reader(lines, **dialect), ()))
    names = (*names, SURPLUS)
    return dialect | {
        "header": None,
        "skiprows": int(has_header),
        "column_names": list(names),
        "features": datasets.Features({name: datasets.Value("string") for name in names}),
        "index_col": False,  # otherwise a line that is too long moves all columns by one
        "na_filter": False,
        "skip_blank_lines": False,  # so that the number of a row is that of its line
    }
