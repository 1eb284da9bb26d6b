"""A file that a reader sees whole, as it was before a write or after it."""

import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write a file atomically: beside its place, then renamed. Raises OSError if that fails; the old one stays then."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
