"""The rows of a table, each with its texts and its label: files here, or a split of a data set of the hub."""

import csv
import hashlib
import re
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any

import datasets
import torch

from trainkit.config.errors import ConfigError
from trainkit.data.splits import READERS, TRAIN, first, load, on_hub, read_text, readable

REMEDY = "give a csv, tsv, json or parquet file, a folder of train.* and dev.*, or owner/name of the hub"
SURPLUS = "(surplus)"  # the column of what a line has more than its table
CLASSES = re.compile(r"u?int\d+|bool|(large_)?string")  # what labels may be


@dataclass(frozen=True)
class Columns:
    """Which columns are read; `names` are those of files without a header line, None: they have one."""

    texts: tuple[str, ...]
    label: str
    names: tuple[str, ...] | None = None
    delimiter: str | None = None  # None: a comma in .csv, else a tab


@dataclass
class Rows:
    """Texts and labels, row by row, none of them missing."""

    texts: list[tuple[str, ...]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)  # of each label: where it comes first
    declared: list[str] | None = None  # the classes in the hub's order

    @property
    def classes(self) -> list[str]:
        """As the hub declares them, else sorted: numbers by value, words by letters."""
        if self.declared is not None:
            return self.declared
        numbers = all(re.fullmatch(r"-?\d+", label) for label in self.places)
        return sorted(self.places, key=int if numbers else None)

    def split(self, fraction: float, seed: int) -> tuple["Rows", "Rows"]:
        """All but a random `fraction` of the rows, and the others."""
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(seed)).tolist()
        cut = round(len(order) * fraction)
        return self._chosen(order[cut:]), self._chosen(order[:cut])

    def _chosen(self, indices: list[int]) -> "Rows":
        return Rows([self.texts[n] for n in indices], [self.labels[n] for n in indices], self.places, self.declared)


@dataclass(frozen=True)
class Source:
    """Where the rows of a split are: in files, or in what came from the hub."""

    setting: str
    path: str
    columns: Columns
    files: tuple[Path, ...] = ()
    split: datasets.Dataset | None = None

    @property
    def known_by(self) -> tuple[str, ...]:
        """Changes with the content and the format alone: hashes of the files, or the hub's own mark."""
        if self.split is not None:
            return (self.split._fingerprint,)
        return tuple(file.suffix + hashlib.sha256(file.read_bytes()).hexdigest() for file in self.files)

    def rows(self, scratch: Path) -> Rows:
        """Reads all of them; `scratch` is an empty folder. ConfigError naming the place of the first faulty row."""
        rows = Rows()
        if self.split is not None:
            self._add(rows, self.split, f"{self.path} ({self.split.split}), row", 1)
        for file in self.files:
            self._add(rows, *self._table(file, scratch))
        return rows

    def _table(self, file: Path, scratch: Path) -> tuple[datasets.Dataset, str, int]:
        """The table of a file, and how a place in it is called: a word, and the first row's number."""
        reader, settings, place, start = READERS[file.suffix], {}, f"{file}, row", 1
        text = "" if reader == "parquet" else read_text(self.setting, self.path, file)
        if reader == "csv":
            settings = _csv(text, file.suffix, self.columns)
            text = text if self.columns.names else text.partition("\n")[2]
            if settings["quoting"] == csv.QUOTE_NONE:  # else a field may span lines
                place, start = f"{file}, line", 1 if self.columns.names else 2
        if reader != "parquet" and not text.strip():
            raise ConfigError(f"{self.setting} = {self.path}: {file} has no rows; {REMEDY}")
        # Read anew in any case: the library knows a file by its time, and would keep a copy.
        found = load(
            self.setting, str(file), "mend it or leave it out", reader,
            data_files={"train": escape(str(file))}, cache_dir=str(scratch), keep_in_memory=True, **settings,
        )  # fmt: skip
        return found["train"], place, start

    def _add(self, rows: Rows, table: datasets.Dataset, place: str, start: int) -> None:
        self._check_columns(table)
        label_kind = table.features[self.columns.label]
        names = label_kind.names if isinstance(label_kind, datasets.ClassLabel) else None
        rows.declared = names
        surplus = table[SURPLUS][:] if SURPLUS in table.column_names else [""] * len(table)
        columns = [table[name][:] for name in (*self.columns.texts, self.columns.label)]
        for number, (more, *texts, label) in enumerate(zip(surplus, *columns, strict=True), start):
            if SURPLUS in table.column_names and not any((more, *texts, label)):
                continue  # an empty line
            if names is not None:
                label = names[label] if label is not None and label >= 0 else None  # -1 on the hub: withheld
            label = "" if label is None else str(label).strip()
            if problem := _problem(more, texts, label):
                raise ConfigError(f"{self.setting} = {self.path}: {place} {number} has {problem}; mend it or remove it")
            rows.texts.append(tuple(texts))
            rows.labels.append(label)
            rows.places.setdefault(label, f"{place} {number}")

    def _check_columns(self, table: datasets.Dataset) -> None:
        """ConfigError where a column is not there, or holds neither text nor classes."""
        has = ", ".join(name for name in table.column_names if name != SURPLUS)
        read = any(READERS[file.suffix] == "csv" for file in self.files)
        way_out = "name one of them" + ", or say how it is read: data.delimiter, data.columns" * read
        for setting, name in (
            *(("data.text_column", text) for text in self.columns.texts),
            ("data.label_column", self.columns.label),
        ):
            if name not in table.column_names:
                raise ConfigError(f"{setting} = {name}: {self.path} has the columns {has}; {way_out}")
            kind = str(getattr(table.features[name], "dtype", type(table.features[name]).__name__))
            if not (CLASSES.fullmatch(kind) if setting == "data.label_column" else kind.endswith("string")):
                wanted = "classes (words or whole numbers)" if setting == "data.label_column" else "text"
                raise ConfigError(
                    f"{setting} = {name}: {self.path} has {kind} in it, not {wanted}; name another of {has}"
                )


def source(
    setting: str, path: str, words: tuple[str, ...], *, subset: str | None, columns: Columns, cache_dir: Path
) -> Source | None:
    """The first split of these names at a path; None where it has none. A file alone is a split for training."""
    if on_hub(path):
        found = load(setting, path, REMEDY, path, subset, cache_dir=str(cache_dir / "datasets"))
        split = first(found, words)
        return None if split is None else Source(setting, path, columns, split=split)
    files = _files(path, words)
    return Source(setting, path, columns, tuple(files)) if files else None


def path_complaints(setting: str, path: str) -> list[str]:
    """What is wrong with a path that needs no reading to be seen."""
    where = Path(path).expanduser()
    if not path:
        return [f"{setting} = null: no table; {REMEDY}"]
    if on_hub(path):
        return []
    if not where.exists():
        return [f"{setting} = {path}: no such file or folder; {REMEDY}"]
    if where.is_file() and where.suffix not in READERS:
        return [f"{setting} = {path}: is none of {', '.join(READERS)}; {REMEDY}"]
    return readable(setting, path, [where] if where.is_file() else _tables(where), REMEDY)


def _files(path: str, words: tuple[str, ...]) -> list[Path]:
    where = Path(path).expanduser()
    if not where.is_dir():
        return [where] if TRAIN[0] in words else []
    found: dict[str, list[Path]] = {}
    for file in _tables(where):
        found.setdefault(re.split("[-_.]", file.name)[0], []).append(file)
    return first(found, words) or []


def _tables(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in READERS)


def _csv(text: str, suffix: str, columns: Columns) -> dict[str, Any]:
    """Settings for the library's csv reader: every field is the string that it is, `NA` and `007` included."""
    delimiter = columns.delimiter or ("," if suffix == ".csv" else "\t")
    form: dict[str, Any] = {
        "delimiter": delimiter,
        "quoting": csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
    }
    names = columns.names
    if names is None:
        names = tuple(next(csv.reader(text.removeprefix("\ufeff").splitlines(), **form), ()))
    names = (*names, SURPLUS)
    return {
        **form,
        "header": None,
        "skiprows": 1 if columns.names is None else 0,
        "column_names": list(names),
        "features": datasets.Features({name: datasets.Value("string") for name in names}),
        "index_col": False,  # else a line that is too long moves all columns by one
        "na_filter": False,
        "skip_blank_lines": False,  # so that the number of a row is that of its line
    }


def _problem(surplus: str, texts: list[str | None], label: str) -> str | None:
    if surplus:
        return "more fields than columns"
    if None in texts or not any(text.strip() for text in texts if text):
        return "no text"
    return None if label else "no label"
