"""`data.path` and `data.val_path`: files here or a data set of the Hugging Face hub, and the splits in them."""

import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import datasets
from rich.console import Console

from trainkit.config.errors import ConfigError

# By the suffix of a file: the reader of the `datasets` library.
TABLE_READERS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
TRAIN_NAMES = ("train", "training")
VALIDATION_NAMES = ("validation", "val", "valid", "dev", "test")
SplitT = TypeVar("SplitT")


@dataclass(frozen=True)
class DataLocation:
    """The value of data.path or data.val_path. Errors about samples name the setting and its value."""

    setting: str  # data.path or data.val_path
    path: str  # "": null
    way_out: str  # ends each error that has no way out of its own

    @property
    def local_path(self) -> Path:
        return Path(self.path).expanduser()

    @property
    def is_on_hub(self) -> bool:
        """Whether the path can only be a data set of the hub: owner/name, and no file or folder here."""
        if self.local_path.exists() or self.local_path.suffix in TABLE_READERS:
            return False
        return HUB_NAME.fullmatch(self.path) is not None

    def complaint(self, problem: str, way_out: str | None = None) -> str:
        return f"{self.setting} = {self.path or 'null'}: {problem}; {way_out or self.way_out}"

    def error(self, problem: str, way_out: str | None = None) -> ConfigError:
        return ConfigError(self.complaint(problem, way_out))


# (location, names of splits) -> the first split of these names at the location, or None
FindSplit = Callable[[DataLocation, tuple[str, ...]], SplitT | None]


def locations(path: str | None, val_path: str | None, way_out: str) -> tuple[DataLocation, DataLocation | None]:
    """The locations of `data.path` and `data.val_path`; None for a `data.val_path` that is not set."""
    train = DataLocation("data.path", str(path or ""), way_out)
    if not val_path:
        return train, None
    return train, DataLocation("data.val_path", str(val_path), way_out)


def missing_complaints(location: DataLocation, content: str) -> list[str]:
    """A complaint if the path is null, or neither exists nor is on the hub. `content` is `text` in "no text"."""
    if not location.path:
        return [location.complaint(f"no {content}")]
    if location.is_on_hub or location.local_path.exists():
        return []
    return [location.complaint("no such file or folder")]


def unreadable_complaints(location: DataLocation, files: Sequence[Path]) -> list[str]:
    """A complaint for each of the files that cannot be opened, or is none: a pipe would be waited for."""
    complaints = []
    for file in files:
        if not file.is_file():
            complaints.append(location.complaint(f"{file} is no regular file", "leave it out"))
        elif not _is_readable(file):
            complaints.append(location.complaint(f"{file} cannot be read"))
    return complaints


def _is_readable(file: Path) -> bool:
    try:
        with file.open("rb") as content:
            content.read(1)
    except OSError:
        return False
    return True


def read_text(location: DataLocation, file: Path) -> str:
    """The text of a file. Raises ConfigError with the file and the line if it is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = f"{file} is not UTF-8 (byte {error.start}) in line {line}"
        raise location.error(problem, "convert it or leave it out") from error


def load_splits(location: DataLocation, *source: Any, **settings: Any) -> Mapping[str, datasets.Dataset]:
    """The splits that `datasets.load_dataset(*source, **settings)` returns, by name.

    Raises ConfigError, in one line about the location, if the library cannot reach or read them.
    """
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)  # the exception repeats each of its lines
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a warning for each attempt to reach the hub
    try:
        with warnings.catch_warnings(), Console(stderr=True).status(f"reading {location.path}"):
            warnings.simplefilter("ignore")  # of pandas, about rows that are refused anyway
            return datasets.load_dataset(*source, **settings)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise location.error(_reason(error)) from error


def _reason(error: Exception) -> str:
    """The message on one line, of at most 200 characters."""
    cause = None
    if isinstance(error, datasets.exceptions.DatasetGenerationError):
        cause = error.__cause__  # the reader's own error; the outer one only says that there was one
    return " ".join(str(cause or error).split())[:200]


def split_word(name: str) -> str:
    """The word that a split's or a file's name starts with: `train` of `train-00000-of-00001`."""
    return re.split("[-_.]", name)[0]


def first_split(splits: Mapping[str, SplitT], names: tuple[str, ...]) -> SplitT | None:
    """The split whose name starts with the first of these names that any split has; None if none has."""
    for wanted in names:
        for name, split in splits.items():
            if split_word(name) == wanted:
                return split
    return None


def find_train_and_val(
    train_location: DataLocation, val_location: DataLocation | None, find: FindSplit[SplitT]
) -> tuple[SplitT, SplitT | None]:
    """The splits to train and to validate on. The second comes from `val_location` if there is one.

    It is None if there is no such location, and the first location has no split to validate on. Raises ConfigError if
    a location has no split for its purpose.
    """
    train = find(train_location, TRAIN_NAMES)
    if train is None:
        raise train_location.error("nothing to train on in it")
    if val_location is None:
        return train, find(train_location, VALIDATION_NAMES)
    val = find(val_location, VALIDATION_NAMES + TRAIN_NAMES)
    if val is None:
        raise val_location.error("nothing to validate on in it")
    return train, val
