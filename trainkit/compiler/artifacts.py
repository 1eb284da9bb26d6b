"""A file with the code that torch has compiled, for processes that have not compiled it yet.

The file begins with two lines: its format, and a header with the fingerprint of its run. Then come torch's
cache artifacts, one blob for each number of a GPU, as that is part of torch's keys. Torch unpickles a blob, and runs
the code in it.
"""

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import torch

FORMAT = b"trainkit compile artifacts 1"

Fingerprint = dict[str, str]


class ForeignArtifactsError(ValueError):
    """The file is of other versions, another GPU or another config."""


class BrokenArtifactsError(ValueError):
    """The file is no such file, or not whole."""


def digest(fingerprint: Fingerprint) -> str:
    """Twelve hexadecimal digits, the same in every process and on every machine."""
    return hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:12]


def collect() -> bytes | None:
    """The code that this process has compiled, or found in its cache, since it entered `inductor.own_artifacts`; None
    without any."""
    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        return None
    return saved[0]


def write(path: Path, fingerprint: Fingerprint, blobs: Sequence[bytes]) -> int:
    """Write the file atomically: a reader sees it whole or not at all. Returns its size. Raises OSError."""
    header = {
        "fingerprint": fingerprint,
        "sizes": [len(blob) for blob in blobs],
        "sha256": hashlib.sha256(b"".join(blobs)).hexdigest(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several machines may share a folder.
    temporary = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(b"\n".join([FORMAT, json.dumps(header).encode(), b"".join(blobs)]))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return size


def load(path: Path, fingerprint: Fingerprint) -> int:
    """Put the file's content into this process's compile cache. Returns the file's size.

    Raises ForeignArtifactsError, BrokenArtifactsError, OSError.
    """
    content = path.read_bytes()
    for blob in _read(content, fingerprint):
        if torch.compiler.load_cache_artifacts(blob) is None:
            raise BrokenArtifactsError("torch cannot read it")
    return len(content)


def _read(content: bytes, fingerprint: Fingerprint) -> list[bytes]:
    """The blobs of a file whose fingerprint and content are right."""
    first_line, _, remainder = content.partition(b"\n")
    if first_line != FORMAT:
        raise BrokenArtifactsError("it is no file of compile artifacts")
    line, _, payload = remainder.partition(b"\n")
    try:
        header = json.loads(line)
        theirs, sizes, checksum = dict(header["fingerprint"]), list(header["sizes"]), header["sha256"]
    except (ValueError, TypeError, KeyError) as error:
        raise BrokenArtifactsError("its header cannot be read") from error
    if hashlib.sha256(payload).hexdigest() != checksum:
        raise BrokenArtifactsError("it is not whole, or was changed")
    differences = []
    for name, value in fingerprint.items():
        if theirs.get(name) != value:
            differences.append(f"{name} is {theirs.get(name)} there, {value} here")
    if differences:
        raise ForeignArtifactsError("; ".join(differences))
    blobs = []
    for size in sizes:
        blobs.append(payload[:size])
        payload = payload[size:]
    return blobs
