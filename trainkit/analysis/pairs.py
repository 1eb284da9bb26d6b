"""Rows -> what one choice of settings measured over another, all else being equal."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainkit.analysis import grouping
from trainkit.analysis.comparison import by_cache, dropped, step_time_ms
from trainkit.results.row import Row
from trainkit.stats import Ratio, ratio


@dataclass(frozen=True)
class Contrast:
    """What rows with one choice of settings measured over those with another, all else that was asked being equal.

    `ratio` is of the median of a field; of step times (`field` None) how many times as fast. Of a share (a field
    `_frac`, which may be 0) there is none, but `shares`, the values of both. `beside` is what tells this pair from
    the other rows with these choices, by the names a user overrides: empty where there are none. `mixed`: that not all
    of a side ran as asked, and why.
    """

    field: str | None
    of: str
    over: str
    beside: dict[str, str]
    ratio: Ratio | None
    shares: tuple[list[float], list[float]] | None = None
    mixed: tuple[str, ...] = ()


def contrasts(rows: Iterable[Row], of: str, over: str, field: str | None = None) -> list[Contrast]:
    """Rows with the overrides `of` ("compile.mode=default model.rewritten!=true") over those with `over`, for each
    work, machine and setting beside them that has both; `cache_found=warm` asks how the run found the compile cache.
    Where either says anything of compile.*, the rest of it need not be equal: ValueError where that leaves several
    settings on one side, which are no repeats of each other. Dropped rows take no part, but those that ran compiled in
    part alone do: that is what comes of such a choice, and it is remarked. What compiling costs is that of the repeats
    that found the cache coldest, unless it is asked otherwise."""
    rows = list(rows)
    as_asked = [replace(row, effective_mode=row.compile_mode) if row.effective_mode == "mixed" else row for row in rows]
    out = {id(row) for drop in dropped(as_asked) for row in drop.rows}
    counted = zip(rows, as_asked, strict=True)
    kept = [row for row, one in counted if id(one) not in out and _figure(row, field) is not None]
    chosen = [dict(word.split("=", 1) for word in words.split()) for words in (of, over)]

    named = {name.removesuffix("!") for words in chosen for name in words}
    compiled = any(name.startswith("compile.") for name in named)

    def beside(row: Row) -> dict[str, str]:
        rest = {
            k: v
            for k, v in grouping.asked(row).items()
            if k not in named and not (compiled and k.startswith("compile."))
        }
        return {name: grouping.said(name, value) for name, value in (rest | grouping.machine(row)).items()}

    sides = [
        grouping.by([row for row in kept if _has(row, words)], lambda row: grouping.hashable(beside(row)))
        for words in chosen
    ]
    for words, side in zip((of, over), sides, strict=True):
        if any(len({grouping.identity(row) for row in alike}) > 1 for alike in side.values()):
            raise ValueError(f"{words}: says several settings that were measured; add what tells them apart")
    every = [beside(of[0]) for side in sides for of in side.values()]
    names = dict.fromkeys(name for rest in every for name in rest)
    # What eager rows lack of compile.* tells nothing apart; a setting that only some have does.
    values = {
        name: {rest.get(name) for rest in every if name in rest or name not in grouping.COMPILE_ONLY} for name in names
    }
    told = grouping.implied(kept)
    varying = [name for name in names if len(values[name]) > 1 and name not in told]
    pairs = [(beside(one[0]), one, sides[1][key]) for key, one in sides[0].items() if key in sides[1]]
    found = []
    for others, *two in pairs:
        if field and field.startswith("compile_") and "cache_found" not in named:
            two = [by_cache(side)[0] for side in two]
        these, those = ([_figure(row, field) for row in side] for side in two)
        mixed = tuple(dict.fromkeys(filter(None, (_mixed(row) for side in two for row in side[:1]))))
        apart = {name: others.get(name, "unset") for name in varying}
        apart = {name: value for name, value in apart.items() if name in others or name not in grouping.COMPILE_ONLY}
        if field and field.endswith("_frac"):
            found.append(Contrast(field, of, over, apart, None, (these, those), mixed))
        else:
            times = ratio(these, those) if field else ratio(those, these)
            found.append(Contrast(field, of, over, apart, times, mixed=mixed))
    return found


def _mixed(row: Row) -> str | None:
    if row.effective_mode != "mixed":
        return None
    return f"{row.num_eager_steps} of {row.num_steps} steps uncompiled ({row.effective_mode_reason})"


def _figure(row: Row, field: str | None) -> Any:
    return getattr(row, field) if field else step_time_ms(row)


def _has(row: Row, words: Mapping[str, str]) -> bool:
    asked = grouping.asked(row) | {"cache_found": row.cache_found}

    def holds(name: str, value: str) -> bool:
        plain = name.removesuffix("!")
        return plain in asked and (grouping.said("", asked[plain]) == value) == (plain == name)

    return all(holds(name, value) for name, value in words.items())
