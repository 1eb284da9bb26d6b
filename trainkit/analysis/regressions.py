"""Compares rows with stored ones of the same settings: which candidate got slower or uses more memory."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from statistics import median

from trainkit.analysis import grouping
from trainkit.analysis.candidates import Spread, spread_of
from trainkit.analysis.dropping import split_dropped, step_times_ms
from trainkit.analysis.machines import step_ratio
from trainkit.results.row import Row
from trainkit.stats import Ratio, ratio

MORE_MEMORY = 1.01  # times the baseline's memory: the allocator's rounding stays below


@dataclass(frozen=True)
class Change:
    """One candidate against its baseline: step times and median peak memory now and then, and the ratios of their
    geometric means, now over then."""

    kind: str
    model: str
    data: str
    batch_size: int | None
    world_size: int
    num_parallel_jobs: int
    calls_per_window: int | None
    label: str
    step_time_ms: tuple[Spread, Spread]
    step_time: Ratio
    peak_allocated_bytes: tuple[float, float] | None
    memory: Ratio | None
    slower: bool
    uses_more_memory: bool


@dataclass(frozen=True)
class Incomparable:
    """The rows of a candidate that both sides measured, whose schema version the other side lacks."""

    label: str
    rows: tuple[Row, ...]
    baseline: tuple[Row, ...]


@dataclass(frozen=True)
class Changes:
    """The candidates that both sides measured, and the labels of the others: those that a comparison drops now, with
    the reason, those that were not measured again, and those that the baseline lacks. `incomparable` are rows of
    candidates that both sides measured. `schema_versions` are those of all rows, ascending."""

    changes: tuple[Change, ...]
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]
    incomparable: tuple[Incomparable, ...]
    schema_versions: tuple[int, ...]


def find_changes(rows: Iterable[Row], baseline: Iterable[Row]) -> Changes:
    """Compare each candidate with the same candidate of a baseline: same work, same kind and number of devices.

    Versions of packages may differ: their effect is the question. Schema versions may not: figures of two mean
    different things. A candidate is slower if the difference is measurable. It uses more memory if it uses over 1 %
    more and each of its repeats uses more than each of the baseline's.
    """
    rows, baseline = list(rows), list(baseline)
    comparable, dropped = split_dropped(rows)
    comparable_baseline, _ = split_dropped(baseline)
    labels = _labels(rows + baseline)
    reasons = {}
    for drop in dropped:
        for row in drop.rows:
            reasons[grouping.requested_key(row)] = drop.reason
    measured = grouping.group_by(comparable, _repeat_key)
    stored = grouping.group_by(comparable_baseline, _repeat_key)
    changes, failed, missing, added, incomparable = [], [], [], [], []
    for key, current in measured.items():
        if key not in stored:
            added.append(labels[key])
            continue
        changes += _changes_by_version(labels[key], current, stored[key])
        unpaired, stored_unpaired = _unpaired(current, stored[key]), _unpaired(stored[key], current)
        if unpaired or stored_unpaired:
            incomparable.append(Incomparable(labels[key], unpaired, stored_unpaired))
    for key, repeats in stored.items():
        if key in measured:
            continue
        reason = reasons.get(grouping.requested_key(repeats[0]))
        if reason is None:
            missing.append(labels[key])
        else:
            failed.append(f"{labels[key]}: {reason}")
    return Changes(
        changes=tuple(changes),
        failed=tuple(failed),
        missing=tuple(missing),
        added=tuple(added),
        incomparable=tuple(incomparable),
        schema_versions=tuple(sorted({row.schema_version for row in rows + baseline})),
    )


def _repeat_key(row: Row) -> Hashable:
    return grouping.requested_key(row), _devices(row)


def _labels(rows: list[Row]) -> dict[Hashable, str]:
    """The label of each candidate; it names the devices if these differ."""
    varying = grouping.varying_names(rows)
    several_devices = len({_devices(row) for row in rows} - {""}) > 1
    labels = {}
    for key, repeats in grouping.group_by(rows, _repeat_key).items():
        label = grouping.label(repeats[0], varying)
        if several_devices:
            label = f"{label} on {_devices(repeats[0])}"
        labels[key] = label
    return labels


def _devices(row: Row) -> str:
    """The number and kind of devices, which must be equal for a change to mean anything."""
    if row.device_name is None:
        return ""
    return f"{row.num_devices} x {row.device_name}"


def _changes_by_version(label: str, current: list[Row], stored: list[Row]) -> list[Change]:
    """A change for each schema version that both sides have; its label names the version if there are several."""
    current_by_version = grouping.group_by(current, lambda row: row.schema_version)
    stored_by_version = grouping.group_by(stored, lambda row: row.schema_version)
    shared = [version for version in current_by_version if version in stored_by_version]
    changes = []
    for version in shared:
        version_label = label
        if len(shared) > 1:
            version_label = f"{label}, schema version {version}"
        changes.append(_change(version_label, current_by_version[version], stored_by_version[version]))
    return changes


def _unpaired(rows: list[Row], other_side: list[Row]) -> tuple[Row, ...]:
    """The rows of schema versions that the other side lacks."""
    versions = {row.schema_version for row in other_side}
    return tuple(row for row in rows if row.schema_version not in versions)


def _change(label: str, current: list[Row], stored: list[Row]) -> Change:
    current_ms, stored_ms = step_times_ms(current), step_times_ms(stored)
    step_time = step_ratio(current, stored)
    now, then = spread_of(current_ms), spread_of(stored_ms)
    assert now is not None  # rows without a step time are dropped
    assert then is not None
    current_peaks, stored_peaks = _peak_bytes(current), _peak_bytes(stored)
    peaks, memory, uses_more_memory = None, None, False
    if current_peaks and stored_peaks:
        peaks = (median(current_peaks), median(stored_peaks))
        memory = ratio(current_peaks, stored_peaks)
        uses_more_memory = memory.value > MORE_MEMORY and min(current_peaks) > max(stored_peaks)
    first = current[0]
    return Change(
        kind=first.kind,
        model=first.model,
        data=first.data,
        batch_size=first.batch_size,
        world_size=first.world_size,
        num_parallel_jobs=first.num_parallel_jobs,
        calls_per_window=first.calls_per_window,
        label=label,
        step_time_ms=(now, then),
        step_time=step_time,
        peak_allocated_bytes=peaks,
        memory=memory,
        slower=bool(step_time.measurable) and step_time.value > 1,
        uses_more_memory=uses_more_memory,
    )


def _peak_bytes(rows: list[Row]) -> list[int]:
    return [row.peak_allocated_bytes for row in rows if row.peak_allocated_bytes]
