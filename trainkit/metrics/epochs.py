"""The cost of an epoch, and its meter: time of training, validation and compiles, peaks of memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pynvml
import torch

from trainkit.metrics.foreign import CpuMeter, CpuTime
from trainkit.metrics.memory import Memory, MemoryPhases, highest, nvml_handle
from trainkit.metrics.ranks import ALL, ANY, LARGEST, SUM, reduce_fields
from trainkit.metrics.steps import Step
from trainkit.metrics.timer import Stopwatch, synchronize
from trainkit.results.row import COMPILE_KINDS


@dataclass
class EpochCost:
    """The cost of one epoch, of one rank or over all ranks."""

    complete: bool = field(metadata=ALL)  # else an exception broke it off
    train_time_s: float = field(metadata=LARGEST)
    val_time_s: float | None = field(metadata=LARGEST)
    compile_s: dict[str, float]  # by COMPILE_KINDS; over ranks that of the rank that compiled longest
    compiled_in_validation: bool = field(metadata=ANY)
    steps: list[Step]
    compile_peak: Memory | None  # of steps and validations in which anything compiled
    steady_peak: Memory | None  # of the others
    from_start: bool = field(default=True, metadata=ALL)  # else it went on from a checkpoint inside of it
    to_end: bool = field(default=True, metadata=ALL)  # else it was ended before its last batch, as by `max_steps`
    energy_j: float | None = field(default=None, metadata=SUM)  # of the GPUs in training; None: not measured
    cpu_time: CpuTime | None = None  # of rank 0's machine in training

    @property
    def finished(self) -> bool:
        """Whether it was trained to its end."""
        return self.complete and self.to_end

    @property
    def compile_time_s(self) -> float:
        return sum(self.compile_s.values())

    @property
    def overhead_ms(self) -> float | None:
        """Milliseconds of training outside of the steps, per step; None without a step."""
        if not self.steps:
            return None
        in_steps_ms = sum(step.time_ms for step in self.steps)
        return (self.train_time_s * 1e3 - in_steps_ms) / len(self.steps)

    @property
    def peak(self) -> Memory:
        peak = highest([self.compile_peak, self.steady_peak])
        assert peak is not None  # an epoch has a step
        return peak

    @property
    def compiled_in_training(self) -> bool:
        return any(step.compiled for step in self.steps)


def steps_by_epoch(epochs: Sequence[EpochCost]) -> list[list[Step]]:
    """The steps of each epoch."""
    return [epoch.steps for epoch in epochs]


def reduce_ranks(ranks: Sequence[EpochCost]) -> EpochCost:
    """The epoch as a user of all ranks sees it, step by step."""
    if len(ranks) == 1:
        return ranks[0]
    steps_by_rank = [rank.steps for rank in ranks]
    steps = []
    for step_of_ranks in zip(*steps_by_rank, strict=True):
        times_ms = [step.time_ms for step in step_of_ranks]
        steps.append(replace(reduce_fields(step_of_ranks), rank_spread_ms=max(times_ms) - min(times_ms)))
    slowest = max(ranks, key=lambda rank: rank.compile_time_s)
    return replace(
        reduce_fields(ranks),
        compile_s=slowest.compile_s,
        steps=steps,
        compile_peak=highest([rank.compile_peak for rank in ranks]),
        steady_peak=highest([rank.steady_peak for rank in ranks]),
    )


class CompileClock:
    """Counts compiles and adds up their time, by COMPILE_KINDS."""

    def __init__(self) -> None:
        self.startup = Stopwatch()  # of the process's first compile, which is in no kind
        self.num_compiles = 0
        self._watches = {kind: Stopwatch() for kind in COMPILE_KINDS}

    def start_up(self, compile_something: Callable[[], None]) -> None:
        """Call a function that compiles, and add its time to `startup` alone."""
        self.startup.start()
        compile_something()
        self.startup.stop()

    def start(self, kind: str) -> None:
        self.num_compiles += 1
        self._watches[kind].start()

    def stop(self, kind: str) -> None:
        self._watches[kind].stop()

    def stop_all(self) -> None:
        """End the compiles that an exception has broken off."""
        for watch in self._watches.values():
            watch.stop()

    def seconds(self) -> dict[str, float]:
        """Seconds so far, by kind."""
        return {kind: watch.total_s for kind, watch in self._watches.items()}


class EnergyMeter:
    """Reads the energy that a whole GPU has used between `start` or `resume` and `stop`, by NVML's counter.

    `joules` is None on a CPU, and on a GPU whose counter cannot be read.
    """

    def start(self, device: torch.device) -> None:
        self.joules: float | None = None
        self._device = device
        self._start_mj = self._read_mj()

    def resume(self) -> None:
        self._start_mj = self._read_mj()

    def stop(self) -> None:
        """May be called twice."""
        end_mj = self._read_mj()
        if self._start_mj is not None and end_mj is not None:
            self.joules = (self.joules or 0.0) + (end_mj - self._start_mj) / 1e3
        self._start_mj = None

    def _read_mj(self) -> int | None:
        if self._device.type != "cuda":
            return None
        try:
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(nvml_handle(self._device)))
        except pynvml.NVMLError:  # not supported, or not allowed: unknown
            return None


class EpochMeter:
    """Measures one epoch after another. The device is synchronised at the borders of an epoch and of its validation.

    A compiler calls `on_compile_start` and `on_compile_end` around each compile, and `on_eager` after a batch in which
    code ran uncompiled that should be compiled.
    """

    def __init__(self) -> None:
        self.compile_clock = CompileClock()
        self.is_open = False  # an epoch is being measured
        self.is_interrupted = False  # its training has ended, or waits for a validation
        self.ran_eager = False  # since the last `begin_step`
        self._num_compiles_before = 0
        self._memory = MemoryPhases()
        self._energy = EnergyMeter()
        self._cpu = CpuMeter()

    def on_eager(self) -> None:
        self.ran_eager = True

    def on_compile_start(self, kind: str) -> None:
        self._memory.on_compile(kind, change_phase=self.is_open)
        self.compile_clock.start(kind)

    def on_compile_end(self, kind: str) -> None:
        self.compile_clock.stop(kind)

    def on_package(self, parameter_bytes: int) -> None:
        """A package was loaded that holds its parameters outside of the caching allocator."""
        self._memory.outside_bytes = parameter_bytes

    def begin(self, device: torch.device) -> None:
        """Begin an epoch with its training."""
        self.device = device
        self._training, self._validation = Stopwatch(), Stopwatch()
        self._compiled_in_validation = False
        self._compile_s_before = self.compile_clock.seconds()
        self._memory.begin(device)
        synchronize(device)
        self._energy.start(device)
        self._cpu.start()
        self.is_open, self.is_interrupted = True, False
        self._training.start()

    def begin_step(self) -> None:
        self._num_compiles_before = self.compile_clock.num_compiles
        self.ran_eager = False

    def compiled(self) -> bool:
        """Whether anything compiled since `begin_step` or `begin_validation`."""
        return self.compile_clock.num_compiles > self._num_compiles_before

    def end_step(self) -> None:
        self._memory.end_compile()

    def begin_validation(self) -> None:
        """End or interrupt the training of this epoch."""
        synchronize(self.device)
        self.is_interrupted = True
        self._training.stop()
        self._energy.stop()
        self._cpu.stop()
        self._validation.start()
        self._num_compiles_before = self.compile_clock.num_compiles

    def resume_training(self) -> None:
        """Go on with the training of this epoch, after a validation inside of it."""
        self.is_interrupted = False
        self._energy.resume()
        self._cpu.resume()
        self._training.start()

    def end_validation(self) -> None:
        synchronize(self.device)
        self._validation.stop()
        self._compiled_in_validation |= self.compiled()
        self._memory.end_compile()

    def end(self) -> None:
        """End the epoch. The device has finished its steps then."""
        synchronize(self.device)
        self.is_open = False
        self._training.stop()
        self._energy.stop()
        self._cpu.stop()
        self._validation.stop()
        self._memory.end()

    def cost(self, steps: list[Step], complete: bool) -> EpochCost:
        """The cost of the epoch that has ended, with its steps."""
        compile_s = self.compile_clock.seconds()
        for kind, seconds_before in self._compile_s_before.items():
            compile_s[kind] -= seconds_before
        return EpochCost(
            complete=complete,
            train_time_s=self._training.total_s,
            val_time_s=self._validation.total_s or None,
            compile_s=compile_s,
            compiled_in_validation=self._compiled_in_validation,
            energy_j=self._energy.joules,
            cpu_time=self._cpu.time,
            steps=steps,
            compile_peak=self._memory.compiling,
            steady_peak=self._memory.steady,
        )
