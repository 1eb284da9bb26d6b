"""Groups of a comparison that differ in one number of their settings, as a series over that number."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainkit.analysis.comparison import Group
from trainkit.analysis.grouping import NUMBER, short_override
from trainkit.report.labels import machine_label

MIN_NUMBERS = 3
NOT_SWEPT = ("forward.deadline_ms", "schema_version")
OtherSettings = tuple[tuple[str, str], ...]  # settings and their values


@dataclass(frozen=True)
class Series:
    """Groups by the number that a setting has in them. `condition` tells the series from others."""

    setting: str
    condition: str
    groups: tuple[tuple[float, Group], ...]


def series_of(groups: Sequence[Group], setting: str | None = None) -> list[Series]:
    """The groups over a setting, or over the one with most numbers; empty if it has less than three.

    A deadline is no such setting: the same network is called before each. Nor is the schema version.
    """
    conditions = [_group_settings(group) for group in groups]
    swept = setting or _swept_setting(conditions)
    if swept is None or len(_numbers(conditions, swept)) < MIN_NUMBERS:
        return []
    numbered_groups: dict[OtherSettings, list[tuple[float, Group]]] = {}
    for group, condition in zip(groups, conditions, strict=True):
        number = condition.pop(swept, "")
        if NUMBER.fullmatch(number):
            numbered_groups.setdefault(tuple(sorted(condition.items())), []).append((float(number), group))
    several = []
    for numbered in numbered_groups.values():
        if len(numbered) > 1:
            several.append(sorted(numbered, key=lambda number_and_group: number_and_group[0]))
    labels = condition_labels([numbered[0][1] for numbered in several], ignored=swept)
    return [Series(swept, label, tuple(numbered)) for label, numbered in zip(labels, several, strict=True)]


def ranked_labels(series: Series) -> list[str]:
    """The labels of all settings, the fastest at the greatest number first."""
    labels: dict[str, None] = {}
    for _, group in reversed(series.groups):
        for candidate in group.candidates:
            labels[candidate.label] = None
    return list(labels)


def _swept_setting(conditions: Sequence[dict[str, str]]) -> str | None:
    """The setting that has most numbers over the groups, at least three."""
    swept, most = None, MIN_NUMBERS - 1
    for name in _names(conditions):
        numbers = _numbers(conditions, name)
        if len(numbers) > most and name not in NOT_SWEPT:
            swept, most = name, len(numbers)
    return swept


def _numbers(conditions: Iterable[dict[str, str]], name: str) -> set[str]:
    """The numbers that a setting has."""
    numbers = set()
    for condition in conditions:
        text = condition.get(name, "")
        if NUMBER.fullmatch(text):
            numbers.add(text)
    return numbers


def condition_labels(groups: Sequence[Group], ignored: str = "") -> list[str]:
    """The settings of each group that tell it from the others, but for the ignored one; empty for a single group."""
    conditions = [_group_settings(group) for group in groups]
    labels: list[list[str]] = [[] for _ in groups]
    for name in _names(conditions):
        values = [condition.get(name) for condition in conditions]
        if name == ignored or len(set(values)) == 1:
            continue
        for label, value in zip(labels, values, strict=True):
            if value is not None:
                label.append(short_override(f"{name}={value}"))
    return [", ".join(label) for label in labels]


def _names(conditions: Iterable[dict[str, str]]) -> dict[str, None]:
    """The names of all settings, in the order of their first appearance."""
    names: dict[str, None] = {}
    for condition in conditions:
        names |= dict.fromkeys(condition)
    return names


def _group_settings(group: Group) -> dict[str, str]:
    """The settings that all rows of the group share, and its machine, by the names of the settings."""
    conditions = {"kind": group.kind, "model": group.model, "data": group.data}
    if group.batch_size is not None:
        conditions["data.batch_size"] = str(group.batch_size)
    if group.precision is not None:
        conditions["amp.precision"] = group.precision
    if group.calls_per_window is not None:
        conditions["forward.timing"] = "stream"
    conditions["processes"] = str(group.world_size)
    conditions["machine"] = machine_label(group.machine)
    if group.schema_version is not None:
        conditions["schema_version"] = str(group.schema_version)
    for override in group.overrides:
        name, _, value = override.partition("=")
        conditions[name] = value
    return conditions
