"""What is made of raw data once and kept: decoded images, tokens."""

import hashlib
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from trainkit.config import ConfigError


def cached(cache_dir: Path, made_from: object, make: Callable[[Path], None]) -> Path:
    """The folder in `cache_dir` that `make(folder)` has filled from exactly `made_from` (its repr), now or earlier.

    Any number of processes may ask for it at once. It is there whole or not at all: what `make` raises leaves nothing.
    ConfigError where the folder cannot be written.
    """
    done = cache_dir / hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]
    if done.exists():
        return done
    # Made under a name of its own and renamed whole: no other process, and no later run, sees half of it.
    unfinished = cache_dir / f".{uuid.uuid4().hex}"
    try:
        unfinished.mkdir(parents=True)
        make(unfinished)
        unfinished.rename(done)
    except OSError as error:
        if not done.exists():  # else another process was first, with the same content
            raise ConfigError(
                f"data.cache_dir = {cache_dir}: {error.strerror or error}; give a folder that can be written"
            ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return done
