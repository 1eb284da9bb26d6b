"""A choice of settings: a line of overrides, which rows fit or do not.

`compile.mode=default model.rewritten!=true` is a choice, lists are as reports write them,
`compile.parts=features+classifier`, and `cache_found=warm` is of the compile cache that a run found.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from trainkit.analysis import grouping
from trainkit.results.row import Row


@dataclass(frozen=True)
class Requirement:
    """That a setting has a value, or that it is set to any other."""

    name: str
    value: str
    excluded: bool

    def holds(self, row: Row) -> bool:
        requested = grouping.requested(row) | {"cache_found": row.cache_found}
        if self.name not in requested:
            return False
        requested_value = grouping.one_spelling(self.name, grouping.value_text(self.name, requested[self.name]))
        equal = requested_value == grouping.one_spelling(self.name, self.value)
        return equal != self.excluded


def requirements_of(choice: str) -> list[Requirement]:
    requirements = []
    for override in choice.split():
        name, value = override.split("=", 1)
        requirements.append(Requirement(name.removesuffix("!"), value, excluded=name.endswith("!")))
    return requirements


def rows_with(choice: str, rows: Iterable[Row]) -> list[Row]:
    """The rows with the settings of a choice, all rows for an empty one."""
    requirements = requirements_of(choice)
    return [row for row in rows if all(requirement.holds(row) for requirement in requirements)]
