"""The rows of a table: texts and a label each, checked one by one."""

import re
from dataclasses import dataclass, field
from typing import Any

import datasets
import torch

from trainkit.config.errors import ConfigError
from trainkit.data.location import DataLocation

SURPLUS = "(surplus)"  # the column for fields of a line behind the table's last column
LABEL_TYPE = re.compile(r"u?int\d+|bool|(large_)?string")


@dataclass(frozen=True)
class Columns:
    """The columns to read. Its repr is part of a cache's key."""

    texts: tuple[str, ...]
    label: str
    names: tuple[str, ...] | None = None  # of files without a header line; None: the header line has them
    delimiter: str | None = None  # None: a comma in .csv, else a tab


@dataclass
class Rows:
    """Texts and labels, row by row. None is missing."""

    texts: list[tuple[str, ...]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    first_rows: dict[str, str] = field(default_factory=dict)  # by label: the first row with it, `FILE, line 3`
    hub_classes: list[str] | None = None  # in the hub's order; None: not from the hub, or not declared there

    @property
    def classes(self) -> list[str]:
        """The hub's classes in its order, or else the labels, sorted: numbers by value, words, and numbers of more than
        18 digits, by letters."""
        if self.hub_classes is not None:
            return self.hub_classes
        if all(re.fullmatch(r"-?\d{1,18}", label) for label in self.first_rows):
            return sorted(self.first_rows, key=int)
        return sorted(self.first_rows)

    def split(self, fraction: float, seed: int) -> tuple["Rows", "Rows"]:
        """The rows without a random `fraction` of them, and that fraction."""
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(seed)).tolist()
        num_second = round(len(order) * fraction)
        return self._select(order[num_second:]), self._select(order[:num_second])

    def _select(self, indices: list[int]) -> "Rows":
        texts = [self.texts[n] for n in indices]
        labels = [self.labels[n] for n in indices]
        return Rows(texts, labels, self.first_rows, self.hub_classes)


@dataclass(frozen=True)
class RawTable:
    """A table as the `datasets` library loads it, not checked yet."""

    location: DataLocation
    content: datasets.Dataset
    row_name: str  # how messages call a row, without its number: `FILE, line`
    first_number: int  # of the first row
    is_csv: bool

    @property
    def has_surplus(self) -> bool:
        return SURPLUS in self.content.column_names


def add_rows(rows: Rows, table: RawTable, columns: Columns) -> None:
    """Append the table's rows. Raises ConfigError with the number of the first row that cannot be used."""
    _check_columns(table, columns)
    content = table.content
    label_feature = content.features[columns.label]
    rows.hub_classes = label_feature.names if isinstance(label_feature, datasets.ClassLabel) else None
    surplus_fields = content[SURPLUS][:] if table.has_surplus else [""] * len(content)
    text_columns = [content[name][:] for name in columns.texts]
    texts_of_rows = zip(*text_columns, strict=True)
    fields = zip(texts_of_rows, content[columns.label][:], surplus_fields, strict=True)
    for number, (texts, raw_label, surplus) in enumerate(fields, table.first_number):
        if table.has_surplus and not surplus and not raw_label and not any(texts):
            continue  # an empty line
        label = _label_text(raw_label, rows.hub_classes)
        problem = _row_problem(texts, label, surplus)
        if problem is not None:
            raise table.location.error(f"{table.row_name} {number} has {problem}", "fix it or remove it")
        rows.texts.append(texts)
        rows.labels.append(label)
        rows.first_rows.setdefault(label, f"{table.row_name} {number}")


def _label_text(raw_label: Any, class_names: list[str] | None) -> str:
    """The label as text, "" if there is none. With class names the raw label is the number of a class."""
    if raw_label is None:
        return ""
    if class_names is None:
        return str(raw_label).strip()
    if raw_label < 0:  # the hub has -1 for withheld labels
        return ""
    return class_names[raw_label].strip()


def _row_problem(texts: tuple[str | None, ...], label: str, surplus: str) -> str | None:
    if surplus:
        return "more fields than columns"
    if None in texts or not any(text.strip() for text in texts if text):
        return "no text"
    if not label:
        return "no label"
    return None


def _check_columns(table: RawTable, columns: Columns) -> None:
    """Raise ConfigError if a column is missing, or has another type than text or classes."""
    for name in columns.texts:
        _check_exists(table, "data.text_column", name)
        if not _column_type(table, name).endswith("string"):
            raise _type_error(table, "data.text_column", name, "text")
    _check_exists(table, "data.label_column", columns.label)
    if not LABEL_TYPE.fullmatch(_column_type(table, columns.label)):
        raise _type_error(table, "data.label_column", columns.label, "classes (words or whole numbers)")


def _check_exists(table: RawTable, setting: str, name: str) -> None:
    if name in table.content.column_names:
        return
    way_out = "name one of them"
    if table.is_csv:
        way_out += ", or say how it is read: data.delimiter, data.columns"
    raise ConfigError(f"{setting} = {name}: {table.location.path} has the columns {_column_names(table)}; {way_out}")


def _type_error(table: RawTable, setting: str, name: str, expected: str) -> ConfigError:
    return ConfigError(
        f"{setting} = {name}: {table.location.path} has {_column_type(table, name)} in it, not {expected}; "
        f"name another of {_column_names(table)}"
    )


def _column_type(table: RawTable, name: str) -> str:
    feature = table.content.features[name]
    return str(getattr(feature, "dtype", type(feature).__name__))


def _column_names(table: RawTable) -> str:
    return ", ".join(name for name in table.content.column_names if name != SURPLUS)
