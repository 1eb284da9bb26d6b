"""The facts of a setting, kept with its dataclass field: help, bounds, and its meaning for the rows of two runs."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, get_type_hints

OWN = "???"  # the default of a setting that each file of its group has for itself; OmegaConf's word for "not set"


@dataclass(frozen=True)
class Bound:
    """A condition on a value, the values that meet it in words, and one of them as an example."""

    holds: Callable[[Any], bool]
    expected: str
    example: Any = None

    def complaint(self, name: str, value: Any) -> str:
        way_out = "" if self.example is None else f"; try {name}={self.example}"
        return f"{name} = {value}: expected {self.expected}{way_out}"


def at_least(least: int) -> Bound:
    """The bound of a whole number."""

    def holds(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return Bound(holds, f"a whole number of at least {least}", least)


def at_most(most: int) -> Bound:
    """The bound of a number that is no text."""
    return Bound(lambda value: isinstance(value, int | float) and value <= most, f"a number of at most {most}", most)


def one_of(*choices: Any) -> Bound:
    return Bound(lambda value: value in choices, f"one of {', '.join(typed_value(choice) for choice in choices)}")


def matching(pattern: str, expected: str, example: str) -> Bound:
    """The bound of a text that a regular expression matches as a whole."""
    return Bound(lambda value: re.fullmatch(pattern, value) is not None, expected, example)


def _is_count_or_fraction(value: Any) -> bool:
    return value >= 0 and (isinstance(value, int) or value <= 1)


ABOVE_0 = Bound(lambda value: isinstance(value, int | float) and value > 0, "a number above 0")
NOT_BELOW_0 = Bound(lambda value: isinstance(value, int | float) and value >= 0, "a number of at least 0", 0)
FRACTION = Bound(lambda value: 0 <= value <= 1, "a fraction from 0 to 1", 0.1)
MILLISECONDS = Bound(lambda value: 0 < value < math.inf, "a number of milliseconds above 0, or null")
COUNT_OR_MINUS_1 = Bound(lambda value: value >= 1 or value == -1, "at least 1, or -1 for no limit")
COUNT_OR_FRACTION = Bound(_is_count_or_fraction, "a number of batches (1, 2, ...) or a fraction (0.0 to 1.0)")
CLASS_NODE = Bound(lambda value: isinstance(value, Mapping), "settings, the class or function as _target_, or null")
BOOLEAN_OR_NULL = Bound(lambda value: value in (True, False), "true, false or null")
BELOW_1 = Bound(lambda value: isinstance(value, int | float) and 0 <= value < 1, "a number from 0 to below 1", 0.9)
# Of every setting that is one: torch, the system's timers and a seed take no larger ones.
WHOLE = Bound(lambda value: abs(value) < 2**32, "a whole number below 2**32")
FINITE = Bound(lambda value: math.isfinite(value) and abs(value) <= 1e9, "a finite number of at most 1e9")


@dataclass(frozen=True)
class Facts:
    """The facts of a setting, or of a group of settings, beside its type and default."""

    about: str = ""  # help
    bounds: tuple[Bound, ...] = ()  # of a value that is not null
    entry: str | None = None  # of a list: an entry, as an example
    training_only: bool = False  # refused where the network is only called
    of_a_stage: bool = False  # a stage of forward.fallback may set it
    # What the setting means for rows:
    label: str | None = None  # the name in labels, if not the dotted name
    column: str | None = None  # the row's field that holds it
    work: bool | None = None  # rows that differ by it did different work; None: as its group says
    compiled_only: bool = False  # has no effect on an eager run
    started_only: bool = False  # is known once a run has started; the row of a run that died before has a default
    silent: bool = False  # tells no rows apart: a column holds what follows from it, or each step is trained the same


@dataclass(frozen=True)
class Setting:
    """A setting or a group of settings, by the dotted name that a user types."""

    name: str
    annotation: Any
    default: Any
    facts: Facts
    is_group: bool
    is_work: bool


def bounds_of(value: Any, declared: Setting) -> tuple[Bound, ...]:
    """The bounds of a setting that has this value: its own, and those of all numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or declared.annotation is str:
        return declared.facts.bounds
    return (*declared.facts.bounds, WHOLE if isinstance(value, int) else FINITE)


def setting(default: Any, about: str = "", **facts: Any) -> Any:
    """The field of a setting. Keywords are the fields of Facts."""
    metadata = {"facts": Facts(about, **facts)}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def group(node: type, about: str = "", **facts: Any) -> Any:
    """The field of a group whose settings are the fields of a dataclass."""
    return field(default_factory=node, metadata={"facts": Facts(about, **facts), "settings": node})


def open_group(settings: type | None, about: str = "", **facts: Any) -> Any:
    """The field of a group that holds the arguments of a class; `settings` has the fields known beforehand."""
    return field(default_factory=dict, metadata={"facts": Facts(about, **facts), "settings": settings})


def settings_of(node: type, prefix: str = "", is_work: bool = False) -> Iterator[Setting]:
    """All groups and settings of a dataclass, each group before its settings."""
    annotations = get_type_hints(node)
    for declared in fields(node):
        facts: Facts = declared.metadata.get("facts", Facts())
        works = is_work if facts.work is None else facts.work
        name = f"{prefix}{declared.name}"
        is_group = "settings" in declared.metadata
        yield Setting(name, annotations[declared.name], default_of(declared), facts, is_group, works)
        nested = declared.metadata.get("settings")
        if nested is not None:
            yield from settings_of(nested, f"{name}.", works)


def default_of(declared: Field[Any]) -> Any:
    if declared.default_factory is not MISSING:
        return declared.default_factory()
    return declared.default


def value_of(config: Any, name: str) -> Any:
    """The value of a dotted setting; None if an open group lacks it."""
    value = config
    for key in name.split("."):
        if value is None:
            return None
        value = value.get(key) if isinstance(value, dict) else getattr(value, key)
    return value


def in_groups(name: str, groups: Any) -> bool:
    """Whether a dotted setting is one of `groups`, or in one of them."""
    return any(name == group or name.startswith(f"{group}.") for group in groups)


def dotted(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values by their dotted names, sorted by name."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": inner_value for inner, inner_value in dotted(value).items()}
        else:
            flat[name] = value
    return dict(sorted(flat.items()))


def typed_value(value: Any) -> str:
    """A value as a user types it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
