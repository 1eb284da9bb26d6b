"""A cache on disk for prepared data: decoded images and tokens."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from filelock import FileLock

from trainkit.config.errors import ConfigError

FORMAT = 2  # of a cached folder; raise it when another version's folders cannot be read
CONTENTS = "contents.json"


def cached_folder(cache_dir: Path, made_from: object, make: Callable[[Path], None]) -> Path:
    """The folder in `cache_dir` that `make(folder)` filled, now or earlier, for the same repr of `made_from`.

    If several processes call this at once, one makes the folder and the others wait. The folder is complete or absent:
    if `make` raises, nothing is left, and the rest of a killed process is removed when the same is made again. Raises
    ConfigError if the folder cannot be written, and if a file of it is gone or no longer what was written.
    """
    key = hashlib.sha256(repr((FORMAT, made_from)).encode()).hexdigest()[:32]
    folder = cache_dir / key
    if folder.exists():
        check_contents(folder)
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
        _list_contents(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _list_contents(folder: Path) -> None:
    """Write the size, the time and the hash of each file into a list, which `check_contents` reads."""
    contents = {}
    for file in sorted(folder.iterdir()):
        contents[file.name] = [file.stat().st_size, file.stat().st_mtime_ns, _hash(file)]
    (folder / CONTENTS).write_text(json.dumps(contents, indent=2) + "\n")


def check_contents(folder: Path) -> None:
    """Raise ConfigError for a file of a cached folder that is gone or holds something else than was written.

    A file of the same size and time is taken for the same: to read all of a large data set takes minutes.
    """
    try:
        contents = json.loads((folder / CONTENTS).read_text())
        for name, (num_bytes, time_ns, content_hash) in contents.items():
            file = folder / name
            now = file.stat()
            if now.st_size == num_bytes and now.st_mtime_ns == time_ns:
                continue
            if now.st_size < num_bytes:
                raise _damaged(file, "is cut off")
            if _hash(file) != content_hash:
                raise _damaged(file, "is not what was written")
    except FileNotFoundError as error:
        raise _damaged(Path(error.filename), "is gone") from error


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _damaged(file: Path, problem: str) -> ConfigError:
    folder = file.parent
    return ConfigError(f"data.cache_dir = {folder.parent}: {file} {problem}; delete the folder {folder}")


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
    """The memory-mapped array of a .npy file in a cached folder. Raises ConfigError if the file is gone or cut off."""
    try:
        return np.load(file, mmap_mode="r")
    except FileNotFoundError as error:
        raise _damaged(file, "is gone") from error
    except (ValueError, EOFError) as error:
        raise _damaged(file, "is cut off") from error
