"""A cache on disk for prepared data: decoded images and tokens."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from filelock import FileLock

from trainkit.config.errors import ConfigError


def cached_folder(cache_dir: Path, made_from: object, make: Callable[[Path], None]) -> Path:
    """The folder in `cache_dir` that `make(folder)` filled, now or earlier, for the same repr of `made_from`.

    If several processes call this at once, one makes the folder and the others wait. The folder is complete or absent:
    if `make` raises, nothing is left, and the rest of a killed process is removed when the same is made again. Raises
    ConfigError if the folder cannot be written.
    """
    key = hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]
    folder = cache_dir / key
    if folder.exists():
        return folder
    make_folder(cache_dir)
    try:
        with FileLock(cache_dir / f".{key}.lock"):
            if not folder.exists():  # another process may have made it while this one waited
                _make_whole(folder, make)
    except OSError as error:
        raise _unwritable(cache_dir, error) from error
    return folder


def _make_whole(folder: Path, make: Callable[[Path], None]) -> None:
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir()
        make(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def make_folder(cache_dir: Path) -> Path:
    """The folder, made if it does not exist. Raises ConfigError if it cannot be made."""
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(cache_dir, error) from error
    return cache_dir


def _unwritable(cache_dir: Path, error: OSError) -> ConfigError:
    return ConfigError(f"data.cache_dir = {cache_dir}: {error.strerror or error}; give a folder that can be written")


def load_array(file: Path) -> np.ndarray:
    """The memory-mapped array of a .npy file in a cached folder. Raises ConfigError if the file is cut off."""
    try:
        return np.load(file, mmap_mode="r")
    except (ValueError, EOFError) as error:
        folder = file.parent
        raise ConfigError(f"data.cache_dir = {folder.parent}: {file} is cut off; delete the folder {folder}") from error
