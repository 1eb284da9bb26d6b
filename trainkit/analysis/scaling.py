"""Scaling: the same work with several numbers of processes, one on each device.

The batch of each process is the same (weak scaling), or the batch of all processes together (strong scaling). An
efficiency is the ratio of the samples a second per process to those with the fewest processes, by step times.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from trainkit.analysis import grouping
from trainkit.analysis.candidates import Spread, spread_of, values_of
from trainkit.analysis.dropping import step_time_ms, step_times_ms
from trainkit.analysis.machines import (
    MachineFactors,
    comparable_times_ms,
    machine_factors,
    ratio_within_machines,
    step_ratio,
)
from trainkit.config.settings import in_groups
from trainkit.results.row import Row
from trainkit.stats import Ratio

SIZES = ("world_size", "data.batch_size")  # of the work: they differ by scaling alone
OF_SEVERAL = ("ddp", "trainer.num_nodes")  # settings without an effect on one process


@dataclass(frozen=True)
class ScalingPoint:
    """A setting with one number of processes: its repeats, and medians with their spread.

    `comparable_step_ms` is the median step time as on the average machine, by which settings are ranked.
    `efficiency` is that over the same setting with the fewest processes, `best_efficiency` that over the fastest
    setting of the same precision with the fewest processes. Both are None if the same setting was not measured with the
    fewest: the ratio would mix what the setting gains with what the processes cost.
    """

    label: str
    rows: tuple[Row, ...]
    step_time_ms: Spread
    comparable_step_ms: float
    samples_per_s: Spread | None  # of each process
    efficiency: Ratio | None
    best_efficiency: Ratio | None
    base_label: str | None  # of the same setting with the fewest processes, which can have no name of a strategy

    @property
    def num_processes(self) -> int:
        return self.rows[0].world_size

    @property
    def power_w(self) -> Spread | None:
        """Watts of each process's GPU: the energy over the time that it is measured in."""
        powers_w = []
        for row, step_ms in zip(self.rows, step_times_ms(self.rows), strict=True):
            if row.energy_per_step_j is not None:
                time_ms = step_ms + (row.step_overhead_ms or 0.0)
                powers_w.append(row.energy_per_step_j / row.world_size / time_ms * 1e3)
        return spread_of(powers_w)

    @property
    def is_eager(self) -> bool:
        return self.rows[0].compile_mode == "eager"


@dataclass(frozen=True)
class Scaling:
    """The points of one work on machines of one kind, by setting: the fastest one with the most processes first."""

    is_strong: bool
    points: tuple[ScalingPoint, ...]
    overrides: tuple[str, ...]  # further ones that all rows share
    precision: str | None  # None if it differs

    @property
    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for point in self.points:
            rows += point.rows
        return rows

    @property
    def row(self) -> Row:
        """A row of the work, with the fewest processes."""
        return min(self.points, key=lambda point: point.num_processes).rows[0]

    @property
    def process_counts(self) -> list[int]:
        return sorted({point.num_processes for point in self.points})

    def points_with(self, num_processes: int) -> list[ScalingPoint]:
        """The points with so many processes, the fastest one first."""
        points = [point for point in self.points if point.num_processes == num_processes]
        return sorted(points, key=lambda point: point.comparable_step_ms)


@dataclass(frozen=True)
class _Base:
    """The repeats of a setting with the fewest processes, and those of the fastest such setting of its precision."""

    label: str
    rows: list[Row]
    fastest_rows: list[Row]


def find_scalings(rows: Iterable[Row]) -> tuple[Scaling, ...]:
    """The scalings among rows that can be compared: weak ones first. In each some setting was measured with the fewest
    processes and with more."""
    trained = [row for row in rows if row.kind == "train"]
    divisible = [row for row in trained if row.batch_size is not None]  # several batch sizes are never split
    scalings = []
    for is_strong, candidates, work in ((False, trained, _weak_work), (True, divisible, _strong_work)):
        for scaled_rows in grouping.group_by(candidates, work).values():
            base_rows, other_rows = _split(scaled_rows)
            if other_rows:
                scalings.append(_scaling(base_rows, other_rows, is_strong))
    return tuple(scalings)


def indistinguishable(points: Sequence[ScalingPoint]) -> list[ScalingPoint]:
    """The points of one number of processes that are not measurably slower than the first, which is the fastest."""
    fastest = points[0]
    as_fast = []
    for point in points[1:]:
        over_fastest = step_ratio(point.rows, fastest.rows)
        if not over_fastest.measurable or over_fastest.value < 1:
            as_fast.append(point)
    return as_fast


def _weak_work(row: Row) -> Hashable:
    return _work(row, row.batch_size)


def _strong_work(row: Row) -> Hashable:
    assert row.batch_size is not None
    return _work(row, row.batch_size * row.world_size)


def _work(row: Row, batch_size: int | None) -> Hashable:
    work: dict[str, Any] = grouping.requested_work(row) | grouping.machine_facts(row)
    del work["num_devices"]  # those that a job sees: each can be given its own
    for name in SIZES:
        work.pop(name, None)
    return grouping.hashable(work | {"batch_size": batch_size})


def _split(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows with the fewest processes and those with more, of which one has a setting of the first.

    Rows with fewer processes that share no setting with the others are left out. Without rows with more there is no
    scaling.
    """
    base_rows: list[Row] = []
    other_rows = rows
    while other_rows:
        fewest = min(row.world_size for row in other_rows)
        base_rows = [row for row in other_rows if row.world_size == fewest]
        other_rows = [row for row in other_rows if row.world_size > fewest]
        if not other_rows:
            break
        ignored = _ignored(fewest)
        base_settings = {_settings(row, ignored) for row in base_rows}
        if any(_settings(row, ignored) in base_settings for row in other_rows):
            break
    return base_rows, other_rows


def _ignored(fewest: int) -> Sequence[str]:
    """The settings that do not tell a setting with the fewest processes from the same with more."""
    return OF_SEVERAL if fewest == 1 else ("trainer.num_nodes",)


def _scaling(base_rows: list[Row], other_rows: list[Row], is_strong: bool) -> Scaling:
    rows = base_rows + other_rows
    ignored = _ignored(base_rows[0].world_size)

    def setting(row: Row) -> Hashable:
        return _settings(row, ignored)

    base_settings = grouping.group_by(base_rows, setting)
    other_settings = grouping.group_by(other_rows, grouping.candidate_key).values()
    factors = machine_factors([*base_settings.values(), *other_settings])
    best_settings = _best_settings(base_settings.values(), factors)
    base_names = [name for name in _varying_names(base_rows) if not in_groups(name, ignored)]
    bases = {}
    points = []
    for key, repeats in base_settings.items():
        base = _Base(grouping.label(repeats[0], base_names), repeats, best_settings[_numerics(repeats[0])])
        bases[key] = base
        points.append(_point(base.label, repeats, base, factors))
    names = dict.fromkeys([*_varying_names(other_rows), *base_names])
    for repeats in other_settings:
        label, same_setting = grouping.label(repeats[0], names), bases.get(setting(repeats[0]))
        points.append(_point(label, repeats, same_setting, factors))
    precision = None if "amp.precision" in names else rows[0].precision
    return Scaling(is_strong, tuple(_by_setting(points)), grouping.shared_overrides(rows), precision)


def _settings(row: Row, ignored: Sequence[str]) -> Hashable:
    """The settings of a row that are not work, without the ignored ones."""
    settings = {}
    for name, value in grouping.requested_settings(row).items():
        if not in_groups(name, ignored):
            settings[name] = value
    return grouping.hashable(settings)


def _best_settings(settings: Iterable[list[Row]], factors: MachineFactors) -> dict[Hashable, list[Row]]:
    """The repeats of the fastest setting of each precision."""
    best: dict[Hashable, list[Row]] = {}
    fastest_first = sorted(settings, key=lambda repeats: _comparable_step_ms(repeats, factors))
    for repeats in fastest_first:
        best.setdefault(_numerics(repeats[0]), repeats)
    return best


def _varying_names(rows: Sequence[Row]) -> list[str]:
    return [name for name in grouping.varying_names(rows) if name not in SIZES]


def _numerics(row: Row) -> Hashable:
    return row.precision, row.matmul_precision


def _point(label: str, rows: list[Row], base: _Base | None, factors: MachineFactors) -> ScalingPoint:
    step_time_ms = spread_of(step_times_ms(rows))
    assert step_time_ms is not None  # rows without a step time are dropped
    rates = [rate / rows[0].world_size for rate in values_of(rows, "samples_per_s")]
    efficiency = best_efficiency = base_label = None
    if base is not None:
        efficiency, best_efficiency = _efficiency(rows, base.rows), _efficiency(rows, base.fastest_rows)
        base_label = base.label
    return ScalingPoint(
        label=label,
        rows=tuple(rows),
        step_time_ms=step_time_ms,
        comparable_step_ms=_comparable_step_ms(rows, factors),
        samples_per_s=spread_of(rates),
        efficiency=efficiency,
        best_efficiency=best_efficiency,
        base_label=base_label,
    )


def _efficiency(rows: list[Row], base: list[Row]) -> Ratio:
    if base[0] is rows[0]:
        return Ratio(1.0, 1.0, 1.0)
    return ratio_within_machines(base, rows, _sample_time_ms)


def _sample_time_ms(row: Row) -> float | None:
    """The step time over the batch of each process; with several batch sizes, which are the same, the step time."""
    time_ms = step_time_ms(row)
    if time_ms is None:
        return None
    return time_ms / (row.batch_size or 1)


def _comparable_step_ms(rows: Sequence[Row], factors: MachineFactors) -> float:
    return median(comparable_times_ms(rows, factors))


def _by_setting(points: Sequence[ScalingPoint]) -> list[ScalingPoint]:
    """The points of each setting by number of processes; the setting that is fastest with the most of them first."""
    fastest_first = sorted(points, key=lambda point: (-point.num_processes, point.comparable_step_ms))
    labels = list(dict.fromkeys(point.label for point in fastest_first))
    return sorted(points, key=lambda point: (labels.index(point.label), point.num_processes))
