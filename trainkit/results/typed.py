"""JSON values -> dataclasses, by the types of their fields."""

import functools
import json
import math
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

LARGEST_FILE_BYTES = 64 * 2**20
MOST_ENTRIES = 10_000  # of a list or a dict
LONGEST_TEXT = 1_000_000  # characters
LARGEST_NUMBER = 2**63
DEEPEST = 32  # levels of nested values


def read_bounded(path: Path) -> str:
    """The text of a file that somebody may have changed. Raises ValueError for what is no regular file, which a read
    may wait for, for a file of more than 64 MiB and for one that cannot be read."""
    try:
        if not path.is_file():
            raise ValueError("it is no regular file")
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise ValueError(f"it has more than {LARGEST_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def parse_text(kind: Any, text: str, name: str) -> Any:
    """`parse` of a JSON text. Raises ValueError for a text that is none, and for one that nests too deep."""
    try:
        return parse(kind, json.loads(text), name)
    except RecursionError as error:
        raise ValueError(f"{name} nests too deep") from error


def parse(kind: Any, value: Any, name: str) -> Any:
    """Return the JSON value as an object of the type `kind`; `name` stands for it in errors.

    `kind` is a dataclass, a list or dict of such types, a plain type, `Any`, or one of them `| None`. Keys that a
    dataclass does not have, as those of a newer version, are ignored.

    Raises ValueError for a value of another type, a missing field, a number that is not finite, and for what no run
    can have left: more than 10,000 entries, a million characters, 32 levels, or a number from 2**63 on.
    """
    check_size(value, name)
    return _parse(kind, value, name)


def _parse(kind: Any, value: Any, name: str) -> Any:
    if type(value) is kind and kind is not float:  # most fields
        return value
    origin, arguments = _type_parts(kind)
    if origin is UnionType:
        return None if value is None else _parse(arguments[0], value, name)
    if origin is list and isinstance(value, list):
        if arguments[0] is float and all(map(_is_number, value)):
            return value
        return [_parse(arguments[0], item, name) for item in value]
    if isinstance(value, dict) and is_dataclass(kind):
        return _parse_fields(kind, value, name)
    if origin is dict and isinstance(value, dict):
        return {key: _parse(arguments[1], item, key) for key, item in value.items()}
    if kind is Any or (kind is float and _is_number(value)):
        return value
    raise ValueError(f"{name} = {str(value)[:40]}: expected {getattr(kind, '__name__', kind)}")


def _parse_fields(kind: Any, values: dict[str, Any], name: str) -> Any:
    types = _field_types(kind)
    missing = sorted(_required_fields(kind) - values.keys())
    if missing:
        raise ValueError(f"{name} has no {', '.join(missing)}")
    arguments = {key: _parse(types[key], value, key) for key, value in values.items() if key in types}
    return kind(**arguments)


@functools.cache
def _type_parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """`list` and `(int,)` of `list[int]`. Cached, for a report parses the types of a row thousands of times."""
    return get_origin(kind), get_args(kind)


@functools.cache
def _field_types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@functools.cache
def _required_fields(kind: Any) -> frozenset[str]:
    names = set()
    for field in fields(kind):
        if field.default is MISSING and field.default_factory is MISSING:
            names.add(field.name)
    return frozenset(names)


def check_size(value: Any, name: str, depth: int = 0) -> None:
    """Raise ValueError for a JSON value that is too large for a row, or that holds one."""
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise ValueError(f"{name} has more than {LONGEST_TEXT} characters")
        return
    if isinstance(value, int | float):
        if LARGEST_NUMBER <= abs(value) != math.inf:
            raise ValueError(f"{name} is no number below 2**63")
        return
    if value is None:
        return
    if len(value) > MOST_ENTRIES:
        raise ValueError(f"{name} has more than {MOST_ENTRIES} entries")
    if depth > DEEPEST:
        raise ValueError(f"{name} nests too deep")
    for inner in value.values() if isinstance(value, dict) else value:
        check_size(inner, name, depth + 1)


def _is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number; Python's JSON reader accepts NaN and Infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
