"""Rows -> what changed since a baseline: the same settings, measured now and then."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from statistics import median

from trainkit.analysis import grouping
from trainkit.analysis.comparison import dropped, step_times
from trainkit.results.row import Row
from trainkit.stats import Ratio, ratio

HUNGRIER = 1.01  # times the baseline's memory: the allocator's rounding is below


@dataclass(frozen=True)
class Change:
    """One setting against its baseline: medians of step time and peak memory now and then, and now over then."""

    kind: str
    model: str
    data: str
    batch_size: int | None
    world_size: int
    label: str
    step_time_ms: tuple[float, float]
    step_time: Ratio
    peak_allocated_bytes: tuple[float, float] | None
    memory: Ratio | None
    slower: bool
    hungrier: bool


@dataclass(frozen=True)
class Changes:
    """What changed since a baseline; the settings that are dropped now, and those that only one side measured, each
    with why."""

    changes: tuple[Change, ...]
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]


def against(rows: Iterable[Row], baseline: Iterable[Row]) -> Changes:
    """Each setting against the same setting in a baseline: same work, same kind and number of devices. Versions may
    differ: what an upgrade does is the question. Slower: measurably, by repeats; hungrier: by more than 1 % and more
    than the repeats of both differ."""
    now, then = list(rows), list(baseline)
    varying = grouping.varying([*now, *then])
    places = {_place(row) for row in [*now, *then]} - {""}

    def label(row: Row) -> str:
        return f"{grouping.label(row, varying)}{f' on {_place(row)}' if len(places) > 1 else ''}"

    def repeats(side: list[Row]) -> dict[Hashable, list[Row]]:
        out = {id(row) for drop in dropped(side) for row in drop.rows}
        return grouping.by(
            [row for row in side if id(row) not in out], lambda row: (grouping.identity(row), _place(row))
        )

    measured, stored = repeats(now), repeats(then)
    why = {grouping.identity(row): drop.reason for drop in dropped(now) for row in drop.rows}
    changes = tuple(_change(label(of[0]), of, stored[key]) for key, of in measured.items() if key in stored)
    gone = [of[0] for key, of in stored.items() if key not in measured]
    return Changes(
        changes,
        tuple(f"{label(row)}: {why[grouping.identity(row)]}" for row in gone if grouping.identity(row) in why),
        tuple(label(row) for row in gone if grouping.identity(row) not in why),
        tuple(label(of[0]) for key, of in measured.items() if key not in stored),
    )


def _place(row: Row) -> str:
    """What a row was measured on, as far as it must be the same for a change to mean something."""
    return f"{row.num_devices} x {row.device_name}" if row.device_name else ""


def _change(label: str, now: list[Row], then: list[Row]) -> Change:
    times_ms = step_times(now), step_times(then)
    step_time = ratio(*times_ms)
    peaks = [[row.peak_allocated_bytes for row in side if row.peak_allocated_bytes] for side in (now, then)]
    memory = ratio(*peaks) if all(peaks) else None
    return Change(
        now[0].kind,
        now[0].model,
        now[0].data,
        now[0].batch_size,
        now[0].world_size,
        label,
        (median(times_ms[0]), median(times_ms[1])),
        step_time,
        (median(peaks[0]), median(peaks[1])) if memory else None,
        memory,
        slower=bool(step_time.measurable) and step_time.value > 1,
        hungrier=memory is not None and memory.value > HUNGRIER and min(peaks[0]) > max(peaks[1]),
    )
