"""What a run cost: time, memory, and the machine. The only file that reads a clock, memory or the machine.

On a GPU a step is timed by a pair of CUDA events that are read after the epoch, so that nothing waits inside it; on a
CPU by the monotonic clock. The device is synchronised at the borders of an epoch and of its validation only.
"""

import functools
import os
import platform
import resource
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.profilers import Profiler

WARMUP_STEPS = 3  # steps after a start or a compile in which allocator, autotuned libraries and CUDA graphs settle


@dataclass
class Step:
    """One optimizer step: its own milliseconds, those from the end of the step before it to its own end (its period),
    how much of that was a wait for batches, its number of batches, and whether anything compiled."""

    time_ms: float
    period_ms: float
    wait_ms: float
    num_batches: int
    compiled: bool


@dataclass
class EpochCost:
    """What one epoch cost, over all ranks: the slowest rank's time, the hungriest rank's memory."""

    complete: bool  # it was trained to its end, not broken off
    train_time_s: float
    val_time_s: float | None
    compile_time_s: float
    compiled_in_validation: bool
    steps: list[Step]
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_device_bytes: int

    @property
    def compiled_in_training(self) -> bool:
        return any(step.compiled for step in self.steps)


@dataclass
class Stopwatch:
    """Adds up the seconds between start() and stop(); either may be called twice."""

    total_s: float = 0.0
    _since: float | None = field(default=None, repr=False)

    def start(self) -> None:
        self._since = time.perf_counter() if self._since is None else self._since

    def stop(self) -> None:
        if self._since is not None:
            self.total_s += time.perf_counter() - self._since
        self._since = None


class BatchClock(Profiler):
    """Takes the time that the training loop waits for its batches; Lightning tells its profiler around each fetch."""

    def __init__(self) -> None:
        super().__init__()
        self._fetching = Stopwatch()

    def start(self, action_name: str) -> None:
        if action_name.endswith("train_dataloader_next"):
            self._fetching.start()

    def stop(self, action_name: str) -> None:
        if action_name.endswith("train_dataloader_next"):
            self._fetching.stop()

    def lap_ms(self) -> float:
        """Milliseconds since the last lap."""
        lap_s, self._fetching = self._fetching.total_s, Stopwatch()
        return lap_s * 1e3


class Meters(Callback):
    """Measures every epoch of a fit; `epochs` holds what they cost.

    A step is from the moment its first batch is there to the end of its optimizer step, so with accumulation it has
    several batches. A step during which anything compiled, the WARMUP_STEPS after it, and one with fewer batches at an
    epoch's end are not steady; every figure of a step is one of the steady steps.
    """

    def __init__(self) -> None:
        self.epochs: list[EpochCost] = []
        self.compiling = Stopwatch()
        self.batch_clock = BatchClock()
        self.num_compiles = 0
        self._open = False  # an epoch is under way

    # compile.Compiler calls these two around every compile
    def on_compile_start(self) -> None:
        self.num_compiles += 1
        self.compiling.start()

    def on_compile_end(self) -> None:
        self.compiling.stop()

    def on_train_epoch_start(self, trainer: Trainer, task: LightningModule) -> None:
        self._device = trainer.strategy.root_device
        self._training, self._validating = Stopwatch(), Stopwatch()
        self._waits_ms: list[float] = []  # of each batch
        self._compiled: list[bool] = []  # in each batch
        self._compiled_in_validation = False
        self._compiling_before_s = self.compiling.total_s
        reset_peaks(self._device)
        self._synchronize()
        self._open = True
        self._training.start()
        self._marks = [self._mark()]  # the epoch's start, then start, end, start, end, ... of the batches

    def on_train_batch_start(self, trainer: Trainer, task: LightningModule, batch: Any, batch_idx: int) -> None:
        self._compiles_before = self.num_compiles
        self._waits_ms.append(self.batch_clock.lap_ms())
        self._marks.append(self._mark())

    def on_train_batch_end(
        self, trainer: Trainer, task: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._marks.append(self._mark())
        self._compiled.append(self.num_compiles > self._compiles_before)

    def on_validation_start(self, trainer: Trainer, task: LightningModule) -> None:
        self._synchronize()
        self._training.stop()
        self._validating.start()
        self._compiles_before = self.num_compiles

    def on_validation_end(self, trainer: Trainer, task: LightningModule) -> None:
        self._synchronize()
        self._validating.stop()
        self._compiled_in_validation |= self.num_compiles > self._compiles_before

    def on_train_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        self.epochs.append(slowest(gather(self._close_epoch(trainer.accumulate_grad_batches, complete=True))))

    def on_exception(self, trainer: Trainer, task: LightningModule, exception: BaseException) -> None:
        """Keep what was measured of the epoch that broke off, of this rank alone: the others may be gone."""
        if self._open and not isinstance(exception, torch.AcceleratorError):  # after which CUDA answers nothing
            self.compiling.stop()
            self.epochs.append(self._close_epoch(trainer.accumulate_grad_batches, complete=False))

    def _close_epoch(self, batches_per_step: int, complete: bool) -> EpochCost:
        self._synchronize()
        self._open = False
        self._training.stop()
        self._validating.stop()
        memory = peak_bytes(self._device, captured=any(self._compiled))
        return EpochCost(
            complete,
            self._training.total_s,
            self._validating.total_s or None,
            self.compiling.total_s - self._compiling_before_s,
            self._compiled_in_validation,
            self._steps(batches_per_step),
            *memory,
        )

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _mark(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _steps(self, batches_per_step: int) -> list[Step]:
        """The epoch's steps; the device must have finished them.

        On a GPU only a wait in which the device stood idle counts as one: else the host was ahead of it.
        """
        starts, ends = self._marks[1::2], self._marks[2::2]
        before = [self._marks[0], *ends]
        waits_ms = [
            min(wait_ms, _ms(end, start)) for wait_ms, end, start in zip(self._waits_ms, before, starts, strict=False)
        ]
        steps = []
        for first in range(0, len(ends), batches_per_step):
            last = min(first + batches_per_step, len(ends)) - 1
            steps.append(
                Step(
                    _ms(starts[first], ends[last]),
                    _ms(before[first], ends[last]),
                    sum(waits_ms[first : last + 1]),
                    last + 1 - first,
                    any(self._compiled[first : last + 1]),
                )
            )
        return steps

    def steady_steps(self) -> list[list[Step]]:
        """The steady steps of each epoch so far."""
        steady: list[list[Step]] = []
        full = max((step.num_batches for epoch in self.epochs for step in epoch.steps), default=1)
        since = 0
        for epoch in self.epochs:
            steady.append([])
            for step in epoch.steps:
                since = 0 if step.compiled else since + 1
                if since > WARMUP_STEPS and step.num_batches == full:
                    steady[-1].append(step)
        return steady

    def settled(self, epochs: list[EpochCost]) -> list[EpochCost]:
        """Of these epochs those that compare between modes: without the run's first one where there are others."""
        return [epoch for epoch in epochs if epoch is not self.epochs[0]] or epochs

    def summary(self, samples_per_batch: int) -> dict[str, Any]:
        """The cost fields of results.Row. `samples_per_batch` counts all ranks. None where nothing steady was seen."""
        steady = [step for epoch in self.steady_steps() for step in epoch]
        times = [step.time_ms for step in steady]
        complete = [epoch for epoch in self.epochs if epoch.complete]
        trained = self.settled([epoch for epoch in complete if not epoch.compiled_in_training])
        validated = self.settled([epoch for epoch in complete if not epoch.compiled_in_validation])
        val_times = [epoch.val_time_s for epoch in validated if epoch.val_time_s is not None]
        return {
            "compile_time_s": max(self.compiling.total_s, sum(epoch.compile_time_s for epoch in self.epochs)),
            "num_steps": sum(len(epoch.steps) for epoch in self.epochs),
            "num_steady_steps": len(steady),
            "step_time_ms_p50": percentile(times, 50),
            "step_time_ms_p90": percentile(times, 90),
            "step_time_ms_p99": percentile(times, 99),
            "epoch_train_time_s": median(epoch.train_time_s for epoch in trained) if trained else None,
            "epoch_val_time_s": median(val_times) if val_times else None,
            "samples_per_s": samples_per_s(steady, samples_per_batch),
            "data_wait_frac": sum(step.wait_ms for step in steady) / periods_ms(steady) if steady else None,
            "peak_allocated_bytes": max((epoch.peak_allocated_bytes for epoch in self.epochs), default=None),
            "peak_reserved_bytes": max((epoch.peak_reserved_bytes for epoch in self.epochs), default=None),
            "peak_device_bytes": max((epoch.peak_device_bytes for epoch in self.epochs), default=None),
        }


def periods_ms(steps: Sequence[Step]) -> float:
    """Milliseconds of the steps with all that was between them."""
    return sum(step.period_ms for step in steps)


def samples_per_s(steps: Sequence[Step], samples_per_batch: int) -> float | None:
    """Samples a second while the steps ran, all that was between them included, or None of no steps."""
    if not steps:
        return None
    return samples_per_batch * sum(step.num_batches for step in steps) / periods_ms(steps) * 1e3


def _ms(start: Any, end: Any) -> float:
    return (end - start) * 1e3 if isinstance(start, float) else start.elapsed_time(end)


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile by linear interpolation, or None of nothing."""
    return float(torch.quantile(torch.tensor(values, dtype=torch.float64), q / 100)) if values else None


def gather(local: Any) -> list[Any]:
    """One object of every rank, in the order of ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return [local]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, local)
    return everyone


def slowest(ranks: list[EpochCost]) -> EpochCost:
    """The epoch as a user of all ranks sees it: in each figure the rank with the most."""
    val_times = [rank.val_time_s for rank in ranks if rank.val_time_s is not None]
    return EpochCost(
        all(rank.complete for rank in ranks),
        max(rank.train_time_s for rank in ranks),
        max(val_times, default=None),
        max(rank.compile_time_s for rank in ranks),
        any(rank.compiled_in_validation for rank in ranks),
        [
            Step(
                max(rank.time_ms for rank in step),
                max(rank.period_ms for rank in step),
                max(rank.wait_ms for rank in step),
                step[0].num_batches,
                any(rank.compiled for rank in step),
            )
            for step in zip(*(rank.steps for rank in ranks), strict=True)
        ],
        max(rank.peak_allocated_bytes for rank in ranks),
        max(rank.peak_reserved_bytes for rank in ranks),
        max(rank.peak_device_bytes for rank in ranks),
    )


def reset_peaks(device: torch.device) -> None:
    """Begin a new period for `peak_bytes`."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device, captured: bool) -> tuple[int, int, int]:
    """Peak bytes since `reset_peaks`: of live tensors, of the caching allocator, and of the device (all processes).

    A replayed CUDA graph's tensors live in a private pool that the allocator does not count as allocated, so the idle
    part of such pools is added: it belongs to the graph and to nobody else. In a period in which a graph was captured
    its tensors were counted at the capture already. On a CPU there is no allocator to ask: all three are the peak
    resident memory of the process since its start.
    """
    if device.type != "cuda":
        return (peak_resident_bytes(),) * 3
    free, total = torch.cuda.mem_get_info(device)
    pools = 0 if captured else idle_pool_bytes(device)
    reserved = torch.cuda.max_memory_reserved(device)
    return min(torch.cuda.max_memory_allocated(device) + pools, reserved), reserved, total - free


def idle_pool_bytes(device: torch.device) -> int:
    """Bytes that CUDA graphs' private pools hold on the device beyond their live tensors."""
    return sum(
        segment["total_size"] - segment["allocated_size"]
        for segment in torch.cuda.memory_snapshot()
        if segment["device"] == device.index and tuple(segment["segment_pool_id"]) != (0, 0)
    )


def peak_resident_bytes() -> int:
    """Peak resident memory of this process. Linux's VmHWM, because ru_maxrss inherits the parent's peak there."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if "VmHWM" in line)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def machine(device: torch.device) -> dict[str, Any]:
    """The machine fields of results.Row."""
    cuda = device.type == "cuda"
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:  # triton comes with CUDA builds of torch only
        triton_version = None
    commit, dirty = git_state()
    return {
        "device_name": torch.cuda.get_device_name(device) if cuda else cpu_name(),
        "num_devices": torch.cuda.device_count() if cuda else os.cpu_count(),
        "torch_version": torch.__version__,
        "triton_version": triton_version,
        "cuda_version": torch.version.cuda,
        "python_version": platform.python_version(),
        "lightning_version": lightning.__version__,
        "git_commit": commit,
        "git_dirty": dirty,
    }


def cpu_name() -> str:
    """The processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


@functools.cache
def git_state() -> tuple[str | None, bool | None]:
    """The commit of this code and whether files differ from it; None outside of git."""
    try:
        commit, status = (
            subprocess.run(
                ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return commit, bool(status)
