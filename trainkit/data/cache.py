"""What is made of raw data once and kept: decoded images, tokens."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from filelock import FileLock

from trainkit.config.errors import ConfigError


def cached(cache_dir: Path, made_from: object, make: Callable[[Path], None]) -> Path:
    """The folder in `cache_dir` that `make(folder)` has filled from exactly `made_from` (its repr), now or earlier.

    Of any number of processes that ask for it at once one makes it, and the others wait. It is there whole or not at
    all: what `make` raises leaves nothing, and what a killed process left is removed when the same is made again.
    ConfigError where the folder cannot be written.
    """
    key = hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]
    done, unfinished = cache_dir / key, cache_dir / f".{key}"
    if done.exists():
        return done
    made(cache_dir)
    try:
        with FileLock(cache_dir / f".{key}.lock"):
            if done.exists():  # by another process, while this one waited
                return done
            shutil.rmtree(unfinished, ignore_errors=True)
            try:
                unfinished.mkdir()
                make(unfinished)
                unfinished.rename(done)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise _unwritable(cache_dir, error) from error
    return done


def made(cache_dir: Path) -> Path:
    """The folder, made where it is not there. ConfigError where it cannot be."""
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(cache_dir, error) from error
    return cache_dir


def _unwritable(cache_dir: Path, error: OSError) -> ConfigError:
    return ConfigError(f"data.cache_dir = {cache_dir}: {error.strerror or error}; give a folder that can be written")


def array(file: Path) -> np.ndarray:
    """The array in a .npy file of a cached folder, memory-mapped. ConfigError where the file is cut off."""
    try:
        return np.load(file, mmap_mode="r")
    except (ValueError, EOFError) as error:
        folder = file.parent
        raise ConfigError(f"data.cache_dir = {folder.parent}: {file} is cut off; delete the folder {folder}") from error
