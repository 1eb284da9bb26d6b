"""The file of a network's class, found without running any code of it."""

import hashlib
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path


def network_digest(target: object) -> str | None:
    """The first 8 digits of the SHA-256 of the Python file in which a class, `_target_`, is; None if none is found.

    A package that leads there is not imported. Files that the network's file imports are not part of it.
    """
    spec = _module_of(str(target).split("."))
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    path = Path(spec.origin)
    if not path.is_file():  # in a zip archive
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def _module_of(names: list[str]) -> ModuleSpec | None:
    """The innermost module or package on the way to a class."""
    try:
        spec = find_spec(names[0])
    except ValueError:  # an empty name, or a module that tells nothing of itself, as __main__
        return None
    for name in names[1:]:
        if spec is None or spec.submodule_search_locations is None:
            break
        inner = PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations)
        if inner is None:
            break
        spec = inner
    return spec
