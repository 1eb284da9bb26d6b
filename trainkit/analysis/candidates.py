"""Reduces the repeats of a candidate: medians, peak memory, speed-up over eager, break-even point."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import median
from typing import Any

from trainkit.analysis import grouping
from trainkit.analysis.dropping import step_times_ms
from trainkit.analysis.machines import (
    MachineFactors,
    comparable_times_ms,
    machine_factors,
    of_common_machines,
    step_ratio,
)
from trainkit.results.columns import Section, headings
from trainkit.results.metric import MeasuredMetric, metric_of
from trainkit.results.row import Row
from trainkit.stats import Ratio, means_differ, repeats_to_show

WORTHWHILE = 0.05  # a gain that is worth its compile time to somebody
SMALL = 0.02  # one that is still asked about
# How many variants are compiled for several shapes: static ones may need a higher limit than torch's own.
VARIANT_SETTINGS = ("compile.dynamic", "compile.max_recompiles", "compile.on_recompile_limit")


@dataclass(frozen=True)
class Spread:
    """The median over repeats, the lowest and the highest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class MetricSpread:
    """The metric of the validation over the repeats, its direction, and their seeds. `is_share`: it is accuracy."""

    name: str
    higher_is_better: bool
    is_share: bool
    spread: Spread
    seeds: frozenset[int]

    def is_better_than(self, other: "MetricSpread") -> bool:
        return (self.spread.median > other.spread.median) == self.higher_is_better


@dataclass(frozen=True)
class BreakEven:
    """When a compiled training overtakes an eager one: optimizer steps, epochs (None if their length is unknown), and
    minutes of compiled training, set-up included. `num_warm_steps` are the steps with a warm compile cache, None
    if no run found it warm while another found it colder."""

    num_steps: int
    num_epochs: float | None
    minutes: float
    num_warm_steps: int | None = None


@dataclass(frozen=True)
class Doubt:
    """What the repeats of a candidate and its baseline cannot show. `varies` is the longest step time over the shortest
    of the side that varies more. A relative difference of `difference` would take `num_repeats` of each side, if they
    vary as these do. `hides_gain`: the candidate may be faster by more than WORTHWHILE."""

    varies: float
    difference: float
    num_repeats: int
    hides_gain: bool


@dataclass(frozen=True)
class ComparedRuns:
    """The runs behind a speed-up: those on the machines that both sides have, if there are such. `num_left_out` are
    further runs of either side."""

    num_own: int
    num_baseline: int
    num_left_out: int


@dataclass(frozen=True)
class Candidate:
    """One combination of settings with its repeats: medians with their spread, and the highest peak of memory.

    `comparable_times_ms` are the step times of the repeats as on the average machine of the group, which candidates are
    ranked by. `compile_time_s` is of the runs that found the compile cache coldest, `warm_compile_time_s` of those that
    found it warm, if there are both: a mixture would be nobody's cost. `num_failed` more runs failed. `baseline` is the
    label of the eager candidate with the same settings but for compile.*, `speedup` its step time over this one's (1
    for eager itself), and `compared_runs` the runs behind that; all three are None without such a candidate.
    `setup_time_s` is `compile_time_s` and, where the engine calls an exported program, the time to export it.
    `break_even` is None unless this candidate is measurably faster. `total_time_s` is that of the set-up and of the
    planned steps. `eager_metric` is that of the eager candidate that predicts best if this one's is worse by more
    than chance, see `metrics_differ`; else that of the eager candidate with the same settings, if it differs. `doubt`
    is None unless the difference from eager is not measurable though both sides have repeats.
    """

    label: str
    rows: tuple[Row, ...]
    num_failed: int
    baseline: str | None
    speedup: Ratio | None
    compared_runs: ComparedRuns | None
    step_time_ms: Spread
    comparable_times_ms: tuple[float, ...]
    compile_time_s: Spread | None
    warm_compile_time_s: Spread | None
    setup_time_s: Spread | None
    compile_parts_s: dict[str, float]
    epoch_train_time_s: Spread | None
    samples_per_s: Spread | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    peak_device_bytes: int | None
    metric: MetricSpread | None
    eager_metric: MetricSpread | None
    break_even: BreakEven | None
    total_time_s: float | None
    doubt: Doubt | None = None

    @property
    def num_repeats(self) -> int:
        return len(self.rows)

    @property
    def comparable_step_ms(self) -> Spread:
        return _spread(self.comparable_times_ms)

    @property
    def cache_found(self) -> str | None:
        """The compile cache that the runs behind `compile_time_s` found: cold, mixed, warm, or None if unknown."""
        coldest, _ = split_by_cache(self.rows)
        return coldest[0].cache_found

    @property
    def is_eager(self) -> bool:
        return runs_eager(self.rows[0])

    @property
    def is_faster(self) -> bool:
        """Whether its steps are measurably shorter than eager's."""
        return self.speedup is not None and bool(self.speedup.measurable) and self.speedup.value > 1

    @property
    def has_worse_metric(self) -> bool:
        """Whether its metric is worse, by more than chance, than that of the eager candidate that predicts best, or of
        the one with the same settings."""
        if self.metric is None or self.eager_metric is None:
            return False
        return not self.metric.is_better_than(self.eager_metric)


@dataclass(frozen=True)
class Baseline:
    """The eager repeats that a candidate is compared with, and their label."""

    label: str
    rows: list[Row]


def measure_candidate(
    label: str,
    rows: list[Row],
    baseline: Baseline | None,
    most_accurate: list[Row],
    num_failed: int,
    num_planned_steps: int | None,
    factors: MachineFactors,
) -> Candidate:
    """Reduce the repeats of a candidate. If they are the baseline's own rows, its speed-up is exactly 1.
    `most_accurate` are the eager repeats that predict best; none if no eager row has a metric. `factors` are those of
    the group's machines."""
    coldest, warm = split_by_cache(rows)
    times_ms = comparable_times_ms(rows, factors)
    setup_time_s = spread_of(_setup_times_s(coldest))
    speedup = _speedup(rows, baseline)
    metric = metric_spread(rows)
    baseline_label, compared_runs, pays = None, None, None
    if baseline is not None:
        baseline_label, compared_runs = baseline.label, _compared_runs(rows, baseline.rows)
        if speedup is not None and speedup.measurable and speedup.value > 1:
            pays = break_even(rows, baseline.rows)
    return Candidate(
        label=label,
        rows=tuple(rows),
        num_failed=num_failed,
        baseline=baseline_label,
        speedup=speedup,
        compared_runs=compared_runs,
        step_time_ms=_spread(step_times_ms(rows)),
        comparable_times_ms=tuple(times_ms),
        compile_time_s=spread_of(values_of(coldest, "compile_time_s")),
        warm_compile_time_s=spread_of(values_of(warm, "compile_time_s")),
        setup_time_s=setup_time_s,
        compile_parts_s=_compile_parts_s(coldest),
        epoch_train_time_s=spread_of(values_of(rows, "epoch_train_time_s")),
        samples_per_s=spread_of(values_of(rows, "samples_per_s")),
        peak_allocated_bytes=_highest(rows, "peak_allocated_bytes"),
        peak_reserved_bytes=_highest(rows, "peak_reserved_bytes"),
        peak_device_bytes=_highest(rows, "peak_device_bytes"),
        metric=metric,
        eager_metric=_eager_metric(rows, metric, baseline, most_accurate),
        break_even=pays,
        total_time_s=_total_time_s(rows, setup_time_s, median(times_ms), num_planned_steps),
        doubt=_doubt(rows, baseline, speedup),
    )


def most_accurate_of(baselines: Iterable[list[Row]]) -> list[Row]:
    """The repeats whose metric has the best median; none if none has a metric."""
    best: list[Row] = []
    best_metric = None
    for rows in baselines:
        metric = metric_spread(rows)
        if metric is not None and (best_metric is None or metric.is_better_than(best_metric)):
            best, best_metric = rows, metric
    return best


def _eager_metric(
    rows: list[Row], metric: MetricSpread | None, baseline: Baseline | None, most_accurate: list[Row]
) -> MetricSpread | None:
    best = metric_spread(most_accurate)
    is_below = metric is not None and best is not None and not metric.is_better_than(best)
    if is_below and metrics_differ(rows, most_accurate):
        return best
    if baseline is not None and metrics_differ(rows, baseline.rows):
        return metric_spread(baseline.rows)
    return None


def runs_eager(row: Row) -> bool:
    """Whether the network itself runs and nothing is compiled, in all stages of a cascade."""
    stages = row.chain or []
    return (
        row.compile_mode == "eager"
        and row.engine == "network"
        and all(stage.compile_mode == "eager" for stage in stages)
    )


def split_by_cache(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The repeats that found the compile cache coldest, and those that found it warm, if these are others. A cache of
    unknown state counts as colder than a warm one."""
    for state in ("cold", "mixed", None):
        coldest = [row for row in rows if row.cache_found == state]
        if coldest:
            return coldest, [row for row in rows if row.cache_found == "warm"]
    return list(rows), []


def values_of(rows: Iterable[Row], column: str) -> list[Any]:
    """The values of a column, of the rows that have one."""
    values = []
    for row in rows:
        value = getattr(row, column)
        if value is not None:
            values.append(value)
    return values


def break_even(rows: Sequence[Row], eager: Sequence[Row]) -> BreakEven | None:
    """When compiled repeats overtake eager ones; None if their steps take as long, or the compile time is unknown.

    The start-up of a process is left out: it is not the network's.
    """
    coldest, warm = split_by_cache(rows)
    setup_time_s, warm_setup_time_s = spread_of(_setup_times_s(coldest)), spread_of(_setup_times_s(warm))
    factors = machine_factors([rows, eager])
    step_s = median(comparable_times_ms(rows, factors)) / 1e3
    saved_s = median(comparable_times_ms(eager, factors)) / 1e3 - step_s
    if setup_time_s is None or saved_s <= 0:
        return None
    num_steps = ceil(setup_time_s.median / saved_s)
    num_epochs = None
    steps_per_epoch = [row.num_steps / row.num_epochs for row in rows if row.num_epochs and row.num_steps]
    if steps_per_epoch:
        num_epochs = num_steps / median(steps_per_epoch)
    num_warm_steps = None
    if warm_setup_time_s is not None:
        num_warm_steps = ceil(warm_setup_time_s.median / saved_s)
    minutes = (setup_time_s.median + num_steps * step_s) / 60
    return BreakEven(num_steps, num_epochs, minutes, num_warm_steps)


def dynamic_over_static(candidates: Iterable[Candidate]) -> dict[str, Ratio]:
    """The step time with `compile.dynamic=true` over that with false and the same settings but for VARIANT_SETTINGS, by
    the label of the candidate with true."""
    by_settings: dict[Hashable, dict[bool | None, Candidate]] = {}
    for candidate in candidates:
        row = candidate.rows[0]
        settings = grouping.requested(row)
        for name in VARIANT_SETTINGS:
            settings.pop(name, None)
        by_settings.setdefault(grouping.hashable(settings), {})[row.compile_dynamic] = candidate
    ratios = {}
    for variants in by_settings.values():
        if True in variants and False in variants:
            ratios[variants[True].label] = step_ratio(variants[True].rows, variants[False].rows)
    return ratios


def _speedup(rows: list[Row], baseline: Baseline | None) -> Ratio | None:
    if baseline is None:
        return None
    if baseline.rows is rows:
        return Ratio(1.0, 1.0, 1.0)
    return step_ratio(baseline.rows, rows)


def _compared_runs(rows: list[Row], baseline_rows: list[Row]) -> ComparedRuns:
    own, baseline = of_common_machines(rows, baseline_rows)
    num_left_out = len(rows) - len(own) + len(baseline_rows) - len(baseline)
    return ComparedRuns(len(own), len(baseline), num_left_out)


def _doubt(rows: list[Row], baseline: Baseline | None, speedup: Ratio | None) -> Doubt | None:
    if baseline is None or speedup is None or speedup.measurable is not False:
        return None
    common = of_common_machines(rows, baseline.rows)
    factors = machine_factors(common)
    sides = [comparable_times_ms(side, factors) for side in common]
    noisier = max(sides, key=lambda times_ms: max(times_ms) / min(times_ms))
    hides_gain = speedup.high is not None and speedup.high > 1 + WORTHWHILE
    difference = WORTHWHILE if hides_gain else SMALL
    return Doubt(max(noisier) / min(noisier), difference, repeats_to_show(difference, noisier), hides_gain)


def _total_time_s(
    rows: list[Row], setup_time_s: Spread | None, step_ms: float, num_planned_steps: int | None
) -> float | None:
    if num_planned_steps is None:
        return None
    steps_s = num_planned_steps * step_ms / 1e3
    if runs_eager(rows[0]):
        return steps_s
    if setup_time_s is None:
        return None
    return setup_time_s.median + steps_s


def _setup_times_s(rows: Iterable[Row]) -> list[float]:
    """The times to export, with an engine that does, and to compile: the cost before the first quick call."""
    times_s = []
    for row in rows:
        if row.compile_time_s is not None:
            times_s.append(row.compile_time_s + (row.export_time_s or 0.0))
    return times_s


def _compile_parts_s(rows: list[Row]) -> dict[str, float]:
    """Medians of the parts of the compile time, by column."""
    medians = {}
    for part in headings(Row, Section.COMPILE_TIME):
        spread = spread_of(values_of(rows, part))
        if spread is not None:
            medians[part] = spread.median
    return medians


def metric_spread(rows: Sequence[Row]) -> MetricSpread | None:
    """The metric of the repeats; None if none has a value."""
    metrics = _metrics(rows)
    spread = spread_of(_metric_values(metrics))
    if spread is None:
        return None
    seeds = frozenset(row.seed for row in rows if metric_of(row) is not None)
    return MetricSpread(metrics[0].name, metrics[0].higher_is_better, metrics[0].is_share, spread, seeds)


def metrics_differ(rows: Sequence[Row], others: Sequence[Row]) -> bool:
    """Whether the metric differs by more than chance: than repeats do, or of accuracy validation sets of that size."""
    metrics, other_metrics = _metrics(rows), _metrics(others)
    values, other_values = _metric_values(metrics), _metric_values(other_metrics)
    if not values or not other_values:
        return False
    sizes = [row.num_val_targets for row in (*rows, *others) if row.num_val_targets]
    return values_differ(values, other_values, metrics[0].is_share, sizes)


def values_differ(values: Sequence[float], others: Sequence[float], are_shares: bool, sizes: Sequence[int]) -> bool:
    """Whether values of a metric differ by more than chance. `sizes` are those of the validation sets."""
    if are_shares:
        return shares_differ(values, others, sizes)
    return means_differ(values, others) is True


def _metrics(rows: Sequence[Row]) -> list[MeasuredMetric]:
    """The metrics of the rows that have one."""
    metrics = []
    for row in rows:
        metric = metric_of(row)
        if metric is not None:
            metrics.append(metric)
    return metrics


def _metric_values(metrics: Sequence[MeasuredMetric]) -> list[float]:
    return [metric.value for metric in metrics if metric.value is not None]


def shares_differ(values: Sequence[float], eager_values: Sequence[float], sizes: Sequence[int]) -> bool:
    """Whether the medians differ by more than repeats do, and than two validation sets of that size would."""
    spread, eager_spread = spread_of(values), spread_of(eager_values)
    assert spread is not None
    assert eager_spread is not None
    allowed = []
    if sizes:
        mean = min(max((spread.median + eager_spread.median) / 2, 0.0), 1.0)
        # Two standard errors of a difference, and one target: if all are right, the standard error is 0.
        allowed.append(2 * sqrt(2 * mean * (1 - mean) / min(sizes)) + 1 / min(sizes))
    for repeats, side in ((values, spread), (eager_values, eager_spread)):
        if len(repeats) > 1:
            allowed.append(side.high - side.low)
    if not allowed:
        return False
    return abs(spread.median - eager_spread.median) > max(allowed)


def spread_of(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return _spread(values)


def _spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def _highest(rows: Sequence[Row], column: str) -> int | None:
    return max(values_of(rows, column), default=None)
