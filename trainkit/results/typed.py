"""JSON values -> dataclasses, by the types of their fields."""

import functools
import json
import math
from collections.abc import Callable, Sized
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

LARGEST_FILE_BYTES = 64 * 2**20
MOST_ENTRIES = 10_000  # of a list or a dict
LONGEST_TEXT = 1_000_000  # characters
LARGEST_NUMBER = 2**63
DEEPEST = 32  # levels of nested values

Parser = Callable[[Any, str], Any]  # of a JSON value and of the name that stands for it in errors


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
    return _parser(kind)(value, name)


@functools.cache
def _parser(kind: Any) -> Parser:
    """The parser of a type. Made once, for a report parses hundreds of values in each of thousands of rows."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return functools.partial(_parse_optional, _parser(arguments[0]))
    if origin is list:
        return functools.partial(_parse_list, kind, _parser(arguments[0]))
    if origin is dict:
        return functools.partial(_parse_dict, kind, _parser(arguments[1]))
    if is_dataclass(kind):
        parsers = {name: _parser(field_kind) for name, field_kind in get_type_hints(kind).items()}
        return functools.partial(_parse_fields, kind, parsers, _required_fields(kind))
    return PARSERS[kind]


def _parse_optional(parse_value: Parser, value: Any, name: str) -> Any:
    return None if value is None else parse_value(value, name)


def _parse_list(kind: Any, parse_item: Parser, values: Any, name: str) -> list[Any]:
    if not isinstance(values, list):
        raise _unexpected(kind, values, name)
    _check_entries(values, name)
    return [parse_item(item, name) for item in values]


def _parse_dict(kind: Any, parse_item: Parser, values: Any, name: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise _unexpected(kind, values, name)
    _check_entries(values, name)
    return {key: parse_item(item, key) for key, item in values.items()}


def _parse_fields(kind: Any, parsers: dict[str, Parser], required: frozenset[str], values: Any, name: str) -> Any:
    if not isinstance(values, dict):
        raise _unexpected(kind, values, name)
    _check_entries(values, name)
    missing = sorted(required - values.keys())
    if missing:
        raise ValueError(f"{name} has no {', '.join(missing)}")
    arguments = {}
    for key, value in values.items():
        if key in parsers:
            arguments[key] = parsers[key](value, key)
        else:
            _check_size(value, key)
    return kind(**arguments)


def _parse_bool(value: Any, name: str) -> bool:
    if value is True or value is False:
        return value
    raise _unexpected(bool, value, name)


def _parse_int(value: Any, name: str) -> int:
    if type(value) is not int:
        raise _unexpected(int, value, name)
    if abs(value) >= LARGEST_NUMBER:
        raise _too_large(name)
    return value


def _parse_float(value: Any, name: str) -> float:
    """A finite number; Python's JSON reader accepts NaN and Infinity."""
    is_number = type(value) is int or (type(value) is float and math.isfinite(value))
    if not is_number:
        raise _unexpected(float, value, name)
    if abs(value) >= LARGEST_NUMBER:
        raise _too_large(name)
    return value


def _parse_text(value: Any, name: str) -> str:
    if type(value) is not str:
        raise _unexpected(str, value, name)
    _check_length(value, name)
    return value


def _parse_any(value: Any, name: str) -> Any:
    _check_size(value, name)
    return value


PARSERS: dict[Any, Parser] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: _parse_text,
    Any: _parse_any,
}


def _required_fields(kind: Any) -> frozenset[str]:
    names = set()
    for field in fields(kind):
        if field.default is MISSING and field.default_factory is MISSING:
            names.add(field.name)
    return frozenset(names)


def _check_size(value: Any, name: str, depth: int = 0) -> None:
    """Raise ValueError for a JSON value that is too large for a row, or that holds one."""
    if isinstance(value, str):
        _check_length(value, name)
    elif isinstance(value, int | float):
        if LARGEST_NUMBER <= abs(value) != math.inf:
            raise _too_large(name)
    elif value is not None:
        _check_entries(value, name)
        if depth > DEEPEST:
            raise ValueError(f"{name} nests too deep")
        for inner in value.values() if isinstance(value, dict) else value:
            _check_size(inner, name, depth + 1)


def _check_length(text: str, name: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"{name} has more than {LONGEST_TEXT} characters")


def _check_entries(values: Sized, name: str) -> None:
    if len(values) > MOST_ENTRIES:
        raise ValueError(f"{name} has more than {MOST_ENTRIES} entries")


def _unexpected(kind: Any, value: Any, name: str) -> ValueError:
    return ValueError(f"{name} = {str(value)[:40]}: expected {getattr(kind, '__name__', kind)}")


def _too_large(name: str) -> ValueError:
    return ValueError(f"{name} is no number below 2**63")
