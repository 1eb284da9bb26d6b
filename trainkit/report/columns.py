"""The columns of a comparison: one quantity of every setting, as text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainkit.analysis.candidates import Candidate, spread_of, values_of
from trainkit.formatting import decimals, fixed, in_one_unit, percent
from trainkit.report.figures import factor_text, interval_text, median_of, range_text
from trainkit.report.verdicts import cache_state
from trainkit.results.columns import Section, headings
from trainkit.results.columns import columns as described
from trainkit.results.row import Row


@dataclass(frozen=True)
class Cell:
    """A figure, and its interval or range ("" if unknown)."""

    text: str
    range: str = ""

    @property
    def inline(self) -> str:
        return f"{self.text} ({self.range})" if self.range else self.text


@dataclass(frozen=True)
class Column:
    """A cell for each setting. Set flush right, the decimal points of a column align."""

    name: str
    unit: str
    cells: list[Cell]

    @property
    def width(self) -> int:
        texts = [self.name, self.unit]
        for cell in self.cells:
            texts += [cell.text, cell.range]
        return max(len(text) for text in texts)

    @property
    def title(self) -> str:
        return f"{self.name} {self.unit}".strip()


def comparison_columns(candidates: Sequence[Candidate]) -> list[Column]:
    """The columns of a group's table. What no setting measured has no column, if it is accuracy or a deadline."""
    forward = candidates[0].rows[0].kind == "forward"
    step_title = "latency" if forward else "step"
    columns = [_speedup(candidates), _compile_time(candidates), _step_time(candidates, step_title)]
    if forward:
        columns += _call_columns(candidates)
    else:
        columns.append(
            _number_column("epoch", "s", [median_of(candidate.epoch_train_time_s) for candidate in candidates])
        )
    columns.append(_memory(candidates))
    columns += _measured_columns(candidates)
    runs = [Cell(fixed(candidate.num_repeats, 0)) for candidate in candidates]
    return [*columns, Column("runs", "", runs)]


def _speedup(candidates: Iterable[Candidate]) -> Column:
    cells = [Cell(factor_text(candidate.speedup), interval_text(candidate.speedup)) for candidate in candidates]
    return Column("speed-up", "over eager", cells)


def _compile_time(candidates: Iterable[Candidate]) -> Column:
    cells = []
    for candidate in candidates:
        cells.append(Cell(fixed(median_of(candidate.compile_time_s), 1), _cache_note(candidate)))
    return Column("compile", "s", cells)


def _cache_note(candidate: Candidate) -> str:
    """The state of the compile cache unless it was cold, and the compile time with a warm one."""
    words = [cache_state(candidate)]
    if candidate.warm_compile_time_s is not None:
        words.append(f"warm {fixed(candidate.warm_compile_time_s.median, 1)}")
    return "; ".join(word for word in words if word)


def _step_time(candidates: Iterable[Candidate], name: str) -> Column:
    spreads = [candidate.step_time_ms for candidate in candidates]
    digits = decimals([spread.median for spread in spreads], 4)
    return Column(name, "ms", [Cell(fixed(spread.median, digits), range_text(spread, digits)) for spread in spreads])


def _call_columns(candidates: Sequence[Candidate]) -> list[Column]:
    """Medians over the repeats: slow calls, and the calls that missed their deadline."""
    p90 = [_median_of_column(candidate, "step_time_ms_p90") for candidate in candidates]
    p99 = [_median_of_column(candidate, "step_time_ms_p99") for candidate in candidates]
    digits = decimals([*p90, *p99], 4)
    columns = []
    for name, values in (("p90", p90), ("p99", p99)):
        columns.append(Column(name, "ms", [Cell(fixed(value, digits)) for value in values]))
    missed = [_median_of_column(candidate, "deadline_miss_frac") for candidate in candidates]
    if any(frac is not None for frac in missed):
        columns.append(Column("missed", "deadline", [Cell(percent(frac)) for frac in missed]))
    return columns


def _median_of_column(candidate: Candidate, column: str) -> float | None:
    return median_of(spread_of(values_of(candidate.rows, column)))


def _memory(candidates: Iterable[Candidate]) -> Column:
    unit, peaks = in_one_unit([candidate.peak_allocated_bytes for candidate in candidates])
    return _number_column("memory", unit, peaks)


def _measured_columns(candidates: Iterable[Candidate]) -> Iterator[Column]:
    """The columns of Section.RANKING that any row has: medians over the repeats with their ranges."""
    for column, name in headings(Row, Section.RANKING).items():
        spreads = [spread_of(values_of(candidate.rows, column)) for candidate in candidates]
        if any(spreads):
            digits = decimals([median_of(spread) for spread in spreads], 4)
            cells = [Cell(fixed(median_of(spread), digits), range_text(spread, digits)) for spread in spreads]
            yield Column(name, described(Row)[column].unit, cells)


def _number_column(name: str, unit: str, values: Sequence[float | None]) -> Column:
    digits = decimals(values, 3)
    return Column(name, unit, [Cell(fixed(value, digits)) for value in values])
