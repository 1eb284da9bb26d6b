"""What data sets read through the `datasets` library: the splits of files here, or of a data set of the hub."""

import logging
import os
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import datasets
from rich.console import Console

from trainkit.config.errors import ConfigError

TRAIN, VALIDATION = ("train", "training"), ("validation", "val", "valid", "dev", "test")
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
READERS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
T = TypeVar("T")


def on_hub(path: str) -> bool:
    """Whether `path` can only be a data set of the hub: owner/name, where no such file or folder is or is meant."""
    if Path(path).expanduser().exists() or Path(path).suffix in READERS:
        return False
    return HUB_NAME.fullmatch(path) is not None


def load(setting: str, path: str, remedy: str, *source: Any, **settings: Any) -> dict[str, datasets.Dataset]:
    """The splits by name that `datasets.load_dataset(*source, **settings)` gives.

    ConfigError, in one line about `setting = path` with its remedy, for what it cannot reach or read.
    """
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)  # each of its lines comes again in the exception
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a warning for each try to reach the hub
    try:
        with warnings.catch_warnings(), Console(stderr=True).status(f"reading {path}"):
            warnings.simplefilter("ignore")  # of pandas, about rows that are refused anyway
            return datasets.load_dataset(*source, **settings)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        # A reader's own error comes wrapped in one that only says that there was one.
        cause = error.__cause__ if isinstance(error, datasets.exceptions.DatasetGenerationError) else None
        said = " ".join(str(cause or error).split())[:200]
        raise ConfigError(f"{setting} = {path}: {said}; {remedy}") from error


def first(found: Mapping[str, T], words: tuple[str, ...]) -> T | None:
    """What is found under the first of these words, `validation_matched` and `train-00000-of-00001` included."""
    return next((what for word in words for name, what in found.items() if re.split("[-_.]", name)[0] == word), None)


def train_and_val(
    path: str, val_path: str | None, find: Callable[[str, str, tuple[str, ...]], T | None], remedy: str
) -> tuple[T, T | None]:
    """What `find(setting, path, names of splits)` has found to train on and to validate on: the latter in val_path
    where one is given, else beside the former; None where there is nothing. ConfigError where what was asked for is
    not there."""
    train = find("data.path", path, TRAIN)
    if train is None:
        raise ConfigError(f"data.path = {path}: nothing to train on in it; {remedy}")
    if val_path is None:
        return train, find("data.path", path, VALIDATION)
    val = find("data.val_path", val_path, (*VALIDATION, *TRAIN))
    if val is None:
        raise ConfigError(f"data.val_path = {val_path}: nothing to validate on in it; {remedy}")
    return train, val


def readable(setting: str, path: str, files: list[Path], remedy: str) -> list[str]:
    """A complaint for each of the files that cannot be opened."""
    return [f"{setting} = {path}: {file} cannot be read; {remedy}" for file in files if not os.access(file, os.R_OK)]


def read_text(setting: str, path: str, file: Path) -> str:
    """The text of a file, which ConfigError names where it is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{setting} = {path}: {file} is not UTF-8 (byte {error.start}) in line {line}; convert it or leave it out"
        ) from error
