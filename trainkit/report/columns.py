"""The columns of a comparison: one quantity of every setting, as text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from trainkit.analysis.candidates import Candidate, MetricSpread, Spread, spread_of, values_of
from trainkit.formatting import decimals, fixed, in_one_unit, percent, time_decimals
from trainkit.report.figures import direction_text, factor_text, interval_text, median_of, range_text
from trainkit.report.verdicts import cache_state


@dataclass(frozen=True)
class Cell:
    """A figure, and its interval or range ("" if unknown)."""

    text: str
    range: str = ""

    @property
    def inline(self) -> str:
        if not self.range:
            return self.text
        return f"{self.text} ({self.range})"


@dataclass(frozen=True)
class TableColumn:
    """A cell for each setting. Set flush right, the decimal points of a column align."""

    name: str
    unit: str
    cells: list[Cell]

    @property
    def width(self) -> int:
        width = max(len(self.name), len(self.unit))
        for cell in self.cells:
            width = max(width, len(cell.text), len(cell.range))
        return width

    @property
    def title(self) -> str:
        return f"{self.name} {self.unit}".strip()


def comparison_columns(candidates: Sequence[Candidate], with_speedups: bool = True) -> list[TableColumn]:
    """The columns of a group's table. The metric, deadlines and files of programs have columns only if they were
    measured. Without speed-ups, compile times have one where something was compiled."""
    step_times, epoch_times_s, peaks, runs = [], [], [], []
    for candidate in candidates:
        step_times.append(candidate.step_time_ms)
        epoch_times_s.append(median_of(candidate.epoch_train_time_s))
        peaks.append(candidate.peak_allocated_bytes)
        runs.append(Cell(fixed(candidate.num_repeats, 0)))
    columns = _gain_columns(candidates, with_speedups)
    if candidates[0].rows[0].kind == "forward":
        name, unit = _latency_title(candidates)
        columns.append(TableColumn(name, unit, time_cells(step_times)))
        columns += _call_columns(candidates)
        columns += _package_columns(candidates)
    else:
        columns.append(TableColumn("step", "ms", time_cells(step_times)))
        columns.append(_number_column("epoch", "s", epoch_times_s))
    unit, peaks_in_unit = in_one_unit(peaks)
    columns.append(_number_column("memory", unit, peaks_in_unit))
    columns += _metric_columns(candidates)
    columns.append(TableColumn("runs", "", runs))
    beside_stopped = [_beside_stopped(candidate) for candidate in candidates]
    if any(cell.text for cell in beside_stopped):
        columns.append(TableColumn("beside", "stopped jobs", beside_stopped))
    return columns


def _gain_columns(candidates: Sequence[Candidate], with_speedups: bool) -> list[TableColumn]:
    speedups, compile_times = [], []
    for candidate in candidates:
        speedups.append(Cell(factor_text(candidate.speedup), interval_text(candidate.speedup)))
        compile_times.append(Cell(fixed(median_of(candidate.compile_time_s), 1), _cache_note(candidate)))
    columns = []
    if with_speedups:
        columns.append(TableColumn("speed-up", "over eager", speedups))
    if with_speedups or any(not candidate.is_eager for candidate in candidates):
        columns.append(TableColumn("compile", "s", compile_times))
    return columns


def _beside_stopped(candidate: Candidate) -> Cell:
    """How many of the repeats were measured while other jobs on the device were stopped."""
    num_beside = len([row for row in candidate.rows if row.beside_stopped_jobs])
    if num_beside == 0:
        return Cell("")
    return Cell(f"{num_beside} of {candidate.num_repeats}")


def _cache_note(candidate: Candidate) -> str:
    """The state of the compile cache unless it was cold, and the compile time with a warm one."""
    state = cache_state(candidate)
    if candidate.warm_compile_time_s is None:
        return state
    warm = f"warm {fixed(candidate.warm_compile_time_s.median, 1)}"
    if not state:
        return warm
    return f"{state}; {warm}"


def _latency_title(candidates: Sequence[Candidate]) -> tuple[str, str]:
    """The name and the unit of the column; of a cascade it is no median, so it may be longer than the p90."""
    if any(candidate.rows[0].chain for candidate in candidates):
        return "latency, mean of", "the stages' medians, ms"
    return "latency", "ms"


def _package_columns(candidates: Sequence[Candidate]) -> list[TableColumn]:
    """Where a setting calls a program in a file: the time to the first answer of all settings, and the sizes of the
    files."""
    if all(candidate.rows[0].engine == "network" for candidate in candidates):
        return []
    answers_s = [_median_of_column(candidate, "first_answer_s") for candidate in candidates]
    file_sizes = []
    for candidate in candidates:
        sizes = values_of(candidate.rows, "package_bytes")
        file_sizes.append(max(sizes, default=None))
    unit, sizes_in_unit = in_one_unit(file_sizes)
    return [_number_column("first answer", "s", answers_s), _number_column("file", unit, sizes_in_unit)]


def _call_columns(candidates: Sequence[Candidate]) -> list[TableColumn]:
    """Medians over the repeats: slow calls, and of requests with a deadline their response times and shares."""
    columns = _percentile_columns(candidates, {"p90": "step_time_ms_p90", "p99": "step_time_ms_p99"})
    responses = {"p50": "response_time_ms_p50", "p90": "response_time_ms_p90", "p99": "response_time_ms_p99"}
    emergencies = {"p50": "emergency_time_ms_p50", "p90": "emergency_time_ms_p90", "p99": "emergency_time_ms_p99"}
    columns += _measured_percentiles(candidates, "response", responses)
    columns += _share_column(candidates, "missed", "deadline", "deadline_miss_frac")
    if any(candidate.rows[0].compile_mode != "eager" for candidate in candidates):
        columns += _share_column(candidates, "missed", "of all calls", "all_calls_miss_frac")
    columns += _measured_percentiles(candidates, "emergency", emergencies)
    columns += _share_column(candidates, "missed", "emergencies", "emergency_miss_frac")
    if any(candidate.rows[0].late == "fallback" for candidate in candidates):
        columns += _share_column(candidates, "late", "calls", "late_call_frac")
    columns += _share_column(candidates, "correct", "in time", "correct_in_time_frac")
    return columns


def _percentile_columns(candidates: Sequence[Candidate], columns: Mapping[str, str]) -> list[TableColumn]:
    """A column in milliseconds for each of some columns of a row, by its name in the table."""
    medians: dict[str, list[float | None]] = {}
    for name, column in columns.items():
        medians[name] = [_median_of_column(candidate, column) for candidate in candidates]
    digits = time_decimals(chain(*medians.values()), 4)
    return [_number_column(name, "ms", values, digits) for name, values in medians.items()]


def _measured_percentiles(
    candidates: Sequence[Candidate], subject: str, columns: Mapping[str, str]
) -> list[TableColumn]:
    """Those columns under the name of their subject, or none if no row has them."""
    columns_by_title = {f"{subject} {name}": column for name, column in columns.items()}
    tables = _percentile_columns(candidates, columns_by_title)
    if all(cell.text == "-" for table in tables for cell in table.cells):
        return []
    return tables


def _share_column(candidates: Sequence[Candidate], name: str, unit: str, column: str) -> list[TableColumn]:
    """A column of shares in percent; none if no row has it."""
    fracs = [_median_of_column(candidate, column) for candidate in candidates]
    if all(frac is None for frac in fracs):
        return []
    return [TableColumn(name, unit, [Cell(percent(frac)) for frac in fracs])]


def _median_of_column(candidate: Candidate, column: str) -> float | None:
    return median_of(spread_of(values_of(candidate.rows, column)))


def _metric_columns(candidates: Sequence[Candidate]) -> Iterator[TableColumn]:
    """A column for each metric that any row has; its direction stands below the name, unless it is accuracy."""
    metrics: dict[str, MetricSpread] = {}
    for candidate in candidates:
        if candidate.metric is not None:
            metrics[candidate.metric.name] = candidate.metric
    for name, metric in metrics.items():
        unit = "" if metric.is_share else direction_text(metric.higher_is_better)
        yield spread_column(name, unit, [_spread_of_metric(candidate, name) for candidate in candidates])


def _spread_of_metric(candidate: Candidate, name: str) -> Spread | None:
    if candidate.metric is None or candidate.metric.name != name:
        return None
    return candidate.metric.spread


def spread_column(name: str, unit: str, spreads: Sequence[Spread | None], digits: int | None = None) -> TableColumn:
    """Medians over the repeats, with their ranges."""
    return TableColumn(name, unit, spread_cells(spreads, digits))


def spread_cells(spreads: Sequence[Spread | None], digits: int | None = None) -> list[Cell]:
    """Medians and ranges, all with as many decimals."""
    if digits is None:
        digits = decimals([median_of(spread) for spread in spreads], 4)
    return [Cell(fixed(median_of(spread), digits), range_text(spread, digits)) for spread in spreads]


def time_cells(times_ms: Sequence[Spread | None]) -> list[Cell]:
    """Medians and ranges of times in milliseconds, all with as many decimals as tell the shortest ones apart."""
    return spread_cells(times_ms, time_decimals([median_of(spread) for spread in times_ms], 4))


def _number_column(name: str, unit: str, values: Sequence[float | None], digits: int | None = None) -> TableColumn:
    if digits is None:
        digits = decimals(values, 3)
    return TableColumn(name, unit, [Cell(fixed(value, digits)) for value in values])
