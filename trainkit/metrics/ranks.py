"""Records of several ranks -> one: each field by the rule in its metadata."""

import functools
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from trainkit.results.columns import OverRanks

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Metadata of a dataclass field. A field without a rule has rank 0's value.
LARGEST = {"over_ranks": OverRanks.LARGEST}
SUM = {"over_ranks": OverRanks.SUM}
ANY = {"over_ranks": OverRanks.ANY}
ALL = {"over_ranks": OverRanks.ALL}

Record = TypeVar("Record", bound="DataclassInstance")


def reduce_fields(ranks: Sequence[Record]) -> Record:
    """Reduce dataclass objects of one type, one of each rank, to one."""
    reduced = {}
    for name, rule in _rules(type(ranks[0])):
        values = [getattr(rank, name) for rank in ranks]
        reduced[name] = rule.reduce(values)
    return type(ranks[0])(**reduced)


@functools.cache
def _rules(record: type["DataclassInstance"]) -> list[tuple[str, OverRanks]]:
    return [(f.name, f.metadata.get("over_ranks", OverRanks.RANK_0)) for f in fields(record)]
