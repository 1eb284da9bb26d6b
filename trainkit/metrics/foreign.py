"""Other processes: those on the device of a run, and their share of the machine's processors."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pynvml
import torch

from trainkit.cluster import cluster_job
from trainkit.metrics.memory import nvml_handle
from trainkit.process_tree import tree

# A GPU that nobody uses has some MiB in use, those that the driver reserves left out. A CUDA context has hundreds.
UNUSED_BYTES = 128 * 2**20
MIN_TICKS = 100  # of all processors; a load of less time would be rounding


class ForeignProcesses:
    """Counts the other processes on a device: when it is made, before the run uses the device, and at `count`."""

    def __init__(self, device: torch.device):
        self._device = device
        self._before: int | None = None
        if device.type == "cuda":
            self._before = self._count_before()

    def count(self) -> int | None:
        """The larger number of before and now. None: unknown, as on a CPU, or in a container whose processes NVML lists
        by other ids or not at all; but there memory that was in use before counts as one process."""
        if self._device.type != "cuda":
            return None
        return _unless_unknown(max, [self._before, self._count_now()])

    def _count_before(self) -> int | None:
        is_unused = not torch.cuda.is_initialized()
        try:
            listed = _compute_pids(self._device)
            memory = pynvml.nvmlDeviceGetMemoryInfo(nvml_handle(self._device), version=pynvml.nvmlMemory_v2)
        except pynvml.NVMLError:  # not supported, or not allowed
            return None
        if not is_unused and os.getpid() not in listed:  # this process may be one of them, by another id
            return None
        foreign = listed - _own_pids()
        if not foreign and is_unused and memory.used > UNUSED_BYTES:
            return 1
        return len(foreign)

    def _count_now(self) -> int | None:
        try:
            listed = _compute_pids(self._device)
        except pynvml.NVMLError:
            return None
        if os.getpid() not in listed:
            return None
        return len(listed - _own_pids())


def total_foreign(counts: Sequence[int | None]) -> int | None:
    """The number over all ranks; unknown if no rank has found any, and some could not look."""
    return _unless_unknown(sum, counts)


def _unless_unknown(reduce: Callable[[list[int]], int], counts: Sequence[int | None]) -> int | None:
    """One number for several; None if it would be 0 and one of them is unknown."""
    counted = [count for count in counts if count is not None]
    if len(counted) < len(counts) and not any(counted):
        return None
    return reduce(counted)


def _compute_pids(device: torch.device) -> set[int]:
    return {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(nvml_handle(device))}


def _own_pids() -> set[int]:
    return {process.pid for process in tree(root_of_ranks())}


def root_of_ranks() -> int:
    """The process on this machine that has all ranks of the run below it, or is the only one."""
    is_started = "TORCHELASTIC_RUN_ID" in os.environ  # by torchrun
    job = cluster_job()
    is_started |= job is not None and job.num_tasks > 1  # by SLURM's daemon for the step, or by submitit
    is_started |= int(os.environ.get("LOCAL_RANK", 0)) > 0  # by rank 0, with Lightning's launcher
    return os.getppid() if is_started else os.getpid()


@dataclass(frozen=True)
class CpuTime:
    """Time of all processors of the machine, in clock ticks: all of it, when busy, and when busy with this run."""

    total: int
    busy: int
    own: int

    def since(self, start: "CpuTime") -> "CpuTime":
        return CpuTime(self.total - start.total, self.busy - start.busy, self.own - start.own)

    def plus(self, other: "CpuTime") -> "CpuTime":
        return CpuTime(self.total + other.total, self.busy + other.busy, self.own + other.own)


def read_cpu_time() -> CpuTime | None:
    """The time since the machine started; None where /proc does not tell."""
    path = Path("/proc/stat")
    if not path.exists():
        return None
    # user nice system idle iowait irq softirq steal; the guests' time that follows is part of the user's
    ticks = [int(field) for field in path.read_text().splitlines()[0].split()[1:9]]
    total, idle = sum(ticks), ticks[3] + ticks[4]
    own = sum(process.cpu_ticks for process in tree(root_of_ranks()))
    return CpuTime(total, total - idle, own)


class CpuMeter:
    """Reads the processor time between `start` or `resume` and `stop`, in `time`; None where it is unknown."""

    def start(self) -> None:
        self.time: CpuTime | None = None
        self._start = read_cpu_time()

    def resume(self) -> None:
        self._start = read_cpu_time()

    def stop(self) -> None:
        """May be called twice."""
        if self._start is None:
            return
        now = read_cpu_time()
        assert now is not None
        elapsed = now.since(self._start)
        self.time = elapsed if self.time is None else self.time.plus(elapsed)
        self._start = None


def foreign_cpu_frac(times: Sequence[CpuTime]) -> float | None:
    """The share of the processors' time that others were busy; None if the times are too short."""
    total = sum(time.total for time in times)
    if total < MIN_TICKS:
        return None
    foreign = sum(time.busy - time.own for time in times)
    return max(foreign, 0) / total
