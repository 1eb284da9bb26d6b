"""JSON values -> dataclasses, by the types of their fields."""

import functools
import math
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


def parse(kind: Any, value: Any, name: str) -> Any:
    """Return the JSON value as an object of the type `kind`; `name` stands for it in errors.

    `kind` is a dataclass, a list or dict of such types, a plain type, `Any`, or one of them `| None`. Keys that a
    dataclass does not have, as those of a newer version, are ignored.

    Raises ValueError for a value of another type, a missing field, and a number that is not finite.
    """
    if get_origin(kind) is UnionType:
        return None if value is None else parse(get_args(kind)[0], value, name)
    if is_dataclass(kind) and isinstance(value, dict):
        return _parse_fields(kind, value, name)
    if get_origin(kind) is list and isinstance(value, list):
        return [parse(get_args(kind)[0], item, name) for item in value]
    if get_origin(kind) is dict and isinstance(value, dict):
        return {key: parse(get_args(kind)[1], item, key) for key, item in value.items()}
    if kind is Any or (kind is float and _is_number(value)) or (kind is not float and type(value) is kind):
        return value
    raise ValueError(f"{name} = {str(value)[:40]}: expected {getattr(kind, '__name__', kind)}")


def _parse_fields(kind: Any, values: dict[str, Any], name: str) -> Any:
    types = _field_types(kind)
    missing = sorted(_required_fields(kind) - values.keys())
    if missing:
        raise ValueError(f"{name} has no {', '.join(missing)}")
    arguments = {key: parse(types[key], value, key) for key, value in values.items() if key in types}
    return kind(**arguments)


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


def _is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number; Python's JSON reader accepts NaN and Infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
