"""What a race looks for: the figure of a row, and the constraints that a row must meet."""

from dataclasses import dataclass

from trainkit.analysis.dropping import step_time_ms
from trainkit.analysis.race import Rules
from trainkit.formatting import duration, fixed, size
from trainkit.results.columns import GIB
from trainkit.results.row import Row

TIME, MEMORY = "time", "memory"  # of hydra.sweeper.minimize


@dataclass(frozen=True)
class Goal:
    """What is best.

    Training: the time of a sample in steady steps; with `num_steps` the time of so many steps, compile included, or as
    many samples in larger batches. Calls of the network: the 99th percentile of the latency. With `minimize=memory` the
    least memory of all that are at most `slower_frac` slower. `memory_gib` is the limit for all.
    """

    kind: str = "train"
    minimize: str = TIME
    num_steps: int | None = None
    memory_gib: float | None = None
    slower_frac: float = 0.02
    batch_size: int | None = None  # of the race's first arm

    @property
    def words(self) -> str:
        figure = "the time of a sample in steady steps"
        if self.kind == "forward":
            figure = "the 99th percentile of the latency"
        elif self.num_steps is not None:
            figure = f"the time of {fixed(self.num_steps, 0)} steps, compile included"
        if self.minimize == MEMORY:
            figure = f"peak memory, with {figure} at most {100 * self.slower_frac:g} % longer"
        if self.memory_gib is not None:
            figure += f", in {self.memory_gib:g} GiB"
        return figure

    def rules(self) -> Rules:
        """The rules of the race: winners differ by at most what is allowed to be slower, and the cheapest wins."""
        return Rules(tolerance=self.slower_frac, least_cost=self.minimize == MEMORY)

    def figure(self, row: Row, compile_s: float) -> float:
        """The figure of a row that a comparison keeps, lower is better; `compile_s` is the compile time of its arm when
        the cache was coldest."""
        if self.kind == "forward":
            assert row.step_time_ms_p99 is not None
            return row.step_time_ms_p99
        step_s = _steady_step_s(row)
        if self.num_steps is not None:
            return compile_s + self.num_steps * step_s * self._batch_ratio(row)
        return 1000 * step_s / (_samples_per_step(row) or row.world_size)

    def _batch_ratio(self, row: Row) -> float:
        """The steps for as many samples as a step of the first batch size has."""
        if self.batch_size is None or row.batch_size is None:
            return 1.0
        return self.batch_size / row.batch_size

    def violation(self, row: Row) -> str | None:
        """The constraint that a row breaks."""
        if row.peak_device_bytes is None or not self.is_too_much(row.peak_device_bytes):
            return None
        return f"takes {size(row.peak_device_bytes)} of {self.memory_gib:g} GiB"

    def is_too_much(self, peak_bytes: int | None) -> bool:
        """Whether this memory is more than the limit."""
        return self.memory_gib is not None and peak_bytes is not None and peak_bytes > self.memory_gib * GIB


def throughput(row: Row) -> float | None:
    """Samples a second by the steady step."""
    num_samples = _samples_per_step(row)
    if num_samples is None or step_time_ms(row) is None:
        return row.samples_per_s
    return num_samples / _steady_step_s(row)


def _samples_per_step(row: Row) -> float | None:
    """The samples of a step of all processes, which has several batches with accumulation; of a call those of its
    batch. None if that varies between calls."""
    if row.samples_per_step is not None:
        return row.samples_per_step
    if row.batch_size is None:
        return None
    return row.batch_size * row.world_size


def _steady_step_s(row: Row) -> float:
    step_ms = step_time_ms(row)
    assert step_ms is not None  # a row without one is dropped
    return step_ms / 1e3


def time_needed(seconds: float) -> str:
    return f"needs about {duration(seconds)}"
