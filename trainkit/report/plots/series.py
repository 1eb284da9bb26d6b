"""Groups of a comparison that differ in one number of their settings, as a series over that number."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainkit.analysis.comparison import Group
from trainkit.analysis.grouping import NUMBER, short_override
from trainkit.report.labels import machine_label

MIN_NUMBERS = 3


@dataclass(frozen=True)
class Series:
    """Groups by the number that a setting has in them. `condition` tells the series from others."""

    setting: str
    condition: str
    groups: tuple[tuple[float, Group], ...]


def series_of(groups: Sequence[Group]) -> list[Series]:
    """The groups over the setting with most numbers; empty if none has three.

    A deadline is no such setting: the same network is called before each.
    """
    conditions = [_conditions(group) for group in groups]
    swept = _swept_setting(conditions)
    if swept is None:
        return []
    names = dict.fromkeys(name for values in conditions for name in values)
    alike: dict[tuple[str | None, ...], list[tuple[float, Group]]] = {}
    for group, values in zip(groups, conditions, strict=True):
        if NUMBER.fullmatch(values.get(swept, "")):
            others = tuple(None if name == swept else values.get(name) for name in names)
            alike.setdefault(others, []).append((float(values[swept]), group))
    several = []
    for numbered_groups in alike.values():
        if len(numbered_groups) > 1:
            several.append(sorted(numbered_groups, key=lambda numbered: numbered[0]))
    labels = condition_labels([numbered_groups[0][1] for numbered_groups in several], ignored=swept)
    return [Series(swept, label, tuple(numbered)) for label, numbered in zip(labels, several, strict=True)]


def _swept_setting(conditions: Sequence[dict[str, str]]) -> str | None:
    """The setting that has most numbers over the groups, at least three."""
    names = dict.fromkeys(name for values in conditions for name in values)
    numbers = {}
    for name in names:
        if name != "forward.deadline_ms":
            texts = {values.get(name, "") for values in conditions}
            numbers[name] = {text for text in texts if NUMBER.fullmatch(text)}
    swept = max(numbers, key=lambda name: len(numbers[name]), default=None)
    if swept is None or len(numbers[swept]) < MIN_NUMBERS:
        return None
    return swept


def condition_labels(groups: Sequence[Group], ignored: str = "") -> list[str]:
    """The settings of each group that tell it from the others, but for the ignored one; empty for a single group."""
    conditions = [_conditions(group) for group in groups]
    names = dict.fromkeys(name for values in conditions for name in values)
    varying = []
    for name in names:
        if name != ignored and len({values.get(name) for values in conditions}) > 1:
            varying.append(name)
    labels = []
    for values in conditions:
        words = [short_override(f"{name}={values[name]}") for name in varying if name in values]
        labels.append(", ".join(words))
    return labels


def _conditions(group: Group) -> dict[str, str]:
    """The settings that all rows of the group share, and its machine, by the names of the settings."""
    conditions = {"kind": group.kind, "model": group.model, "data": group.data}
    if group.batch_size is not None:
        conditions["data.batch_size"] = str(group.batch_size)
    if group.precision is not None:
        conditions["amp.precision"] = group.precision
    conditions["processes"] = str(group.world_size)
    conditions["machine"] = machine_label(group.machine)
    for override in group.overrides:
        name, _, value = override.partition("=")
        conditions[name] = value
    return conditions
