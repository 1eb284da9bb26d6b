"""The cache of compiled code between processes: the user's own, or a fresh directory."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from trainkit.config.errors import ConfigError

COLD_PREFIX = "trainkit-cold-"


def remove_cold_cache() -> None:
    """Remove the fresh directory of `compile_cache`, in a process that ends without leaving that context."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    if Path(folder).name.startswith(COLD_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def require_writable_cache() -> None:
    """Raise ConfigError if nothing can be written into the directory of TORCHINDUCTOR_CACHE_DIR. To be called before
    the compiler is looked for, which torch tries there."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if folder is None:  # torch's own, below the directory of temporary files
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        way_out = "make it writable, or choose another"
        raise ConfigError(
            f"TORCHINDUCTOR_CACHE_DIR = {folder}: compiled code cannot be written there ({error.strerror}); {way_out}"
        ) from error


@contextmanager
def compile_cache(kind: str, attention: str = "auto") -> Iterator[None]:
    """`cold`: compile into a fresh directory of this process, deleted at the end. `warm`: the user's own cache, of
    which only code for the same `trainer.attention` is taken."""
    with ExitStack() as stack:
        if attention != "auto":
            stack.enter_context(_attention_in_keys(attention))
        if kind == "cold":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=COLD_PREFIX, ignore_cleanup_errors=True))
            stack.enter_context(_environment_variable("TORCHINDUCTOR_CACHE_DIR", folder))
            stack.enter_context(_environment_variable("TRITON_CACHE_DIR", str(Path(folder, "triton"))))
        yield


@contextmanager
def _attention_in_keys(attention: str) -> Iterator[None]:
    """Torch's cache keys leave out which attention kernels are allowed, so that a run would get the code of another
    setting. No issue of torch's is known; tests/test_workarounds.py fails when its keys include them."""
    tag = f"{torch.compiler.config.cache_key_tag} trainer.attention={attention}"
    with torch.compiler.config.patch(cache_key_tag=tag):  # type: ignore[attr-defined]
        yield


@contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable, and restore it."""
    value_before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if value_before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value_before
