"""Use of memory: the only module that asks for it."""

import gc
import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml
import torch

from trainkit.results.columns import GIB

CLEAR_REFS = Path("/proc/self/clear_refs")
MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Memory:
    """Peak bytes of live tensors, of the caching allocator, and of the device."""

    allocated: int
    reserved: int
    device: int


def highest(peaks: Sequence[Memory | None]) -> Memory | None:
    """The largest of each figure; None without a peak."""
    measured = [peak for peak in peaks if peak is not None]
    if not measured:
        return None
    return Memory(
        allocated=max(peak.allocated for peak in measured),
        reserved=max(peak.reserved for peak in measured),
        device=max(peak.device for peak in measured),
    )


class MemoryPhases:
    """Peaks of memory in an epoch: while anything compiles, and the rest.

    A compile phase lasts from a compile to the end of its step or validation. Reading the peaks asks the allocator on
    the host and waits for nothing.
    """

    def __init__(self) -> None:
        self.outside_bytes = 0  # of a GPU, held outside of the caching allocator
        self.compiling: Memory | None = None
        self.steady: Memory | None = None
        self._in_compile = False
        self._captured = False  # a CUDA graph, since the peaks were last read

    def begin(self, device: torch.device) -> None:
        """Begin an epoch."""
        self._device = device
        self.compiling = self.steady = None
        self._in_compile = False
        reset_peaks(device)

    def on_compile(self, kind: str, change_phase: bool) -> None:
        """A compile of this kind begins; outside of an epoch it changes no phase."""
        if change_phase and not self._in_compile:
            self.end()
            self._in_compile = True
        if kind == "cudagraph":
            self._captured = True

    def end_compile(self) -> None:
        """End the compile phase, if there is one."""
        if self._in_compile:
            self.end()
            self._in_compile = False

    def end(self) -> None:
        """End the phase: add its peaks to those of its kind."""
        peak = peak_memory(self._device, self._captured, self.outside_bytes)
        if self._in_compile:
            self.compiling = highest([self.compiling, peak])
        else:
            self.steady = highest([self.steady, peak])
        self._captured = False
        reset_peaks(self._device)


def reset_peaks(device: torch.device) -> None:
    """Begin a new period of `peak_memory`."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif os.access(CLEAR_REFS, os.W_OK):
        CLEAR_REFS.write_text("5")  # Linux: resets VmHWM


def peak_reserved_bytes(step: Callable[[], None], device: torch.device) -> int | None:
    """The peak memory of the caching allocator in a step, which begins without unused memory; None on a CPU."""
    if device.type != "cuda":
        return None
    release_unused()
    reset_peaks(device)
    step()
    return torch.cuda.max_memory_reserved(device)


def release_unused() -> None:
    """Give the memory of tensors that are gone back to the GPU."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def peak_memory(device: torch.device, captured: bool, outside_bytes: int = 0) -> Memory:
    """The peaks since `reset_peaks`; the device's figure is the memory that the process holds now. `outside_bytes` of
    tensors are held outside of the caching allocator.

    The tensors of a replayed CUDA graph are in a private pool, which the allocator does not count as allocated. So the
    idle part of such pools is added, unless a graph was captured in the period: then its tensors are counted already.
    On a CPU all three figures are the peak resident memory of the process.
    """
    if device.type != "cuda":
        resident = peak_resident_bytes()
        return Memory(resident, resident, resident)
    pools = 0 if captured else idle_pool_bytes(device)
    reserved = torch.cuda.max_memory_reserved(device)
    allocated = min(torch.cuda.max_memory_allocated(device) + pools, reserved)
    return Memory(allocated + outside_bytes, reserved + outside_bytes, held_bytes(device))


def held_bytes(device: torch.device) -> int:
    """The memory of this process on the device with its CUDA context, by NVML, as nvidia-smi shows it.

    In some containers NVML does not know the process by its number: then the memory of all processes.
    """
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(nvml_handle(device)):
        if process.pid == os.getpid() and process.usedGpuMemory is not None:
            return int(process.usedGpuMemory)
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def used_frac(device: torch.device) -> float:
    """The share of a GPU's memory that is in use, by any process and with the unused part of their allocators; of a
    CPU's, the machine's. Raises OSError for a CPU without /proc/meminfo (Linux)."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return 1 - free / total
    kib = _meminfo_kib()
    return 1 - kib["MemAvailable"] / kib["MemTotal"]


def machine_bytes() -> int | None:
    """The memory of this machine; None without /proc/meminfo (Linux)."""
    if not MEMINFO.exists():
        return None
    return 1024 * _meminfo_kib()["MemTotal"]


def _meminfo_kib() -> dict[str, int]:
    kib = {}
    for line in MEMINFO.read_text().splitlines():
        name, _, value = line.partition(":")
        kib[name] = int(value.split()[0])
    return kib


def nvml_handle(device: torch.device) -> Any:
    """NVML's handle of a CUDA device."""
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")


def limit_memory(device: torch.device, limit_gib: float | None) -> None:
    """Limit the allocator to a number of GiB of a GPU; None: no limit.

    Beyond the limit torch.OutOfMemoryError is raised, as on a smaller card. The CUDA context does not count.
    """
    if device.type != "cuda":
        return
    fraction = 1.0
    if limit_gib is not None:
        fraction = min(limit_gib * GIB / torch.cuda.get_device_properties(device).total_memory, 1.0)
    torch.cuda.set_per_process_memory_fraction(fraction, device)


def idle_pool_bytes(device: torch.device) -> int:
    """Bytes in the private pools of CUDA graphs on the device, beyond their live tensors."""
    idle_bytes = 0
    for segment in torch.cuda.memory_snapshot():
        is_private = tuple(segment["segment_pool_id"]) != (0, 0)
        if is_private and segment["device"] == device.index:
            idle_bytes += segment["total_size"] - segment["allocated_size"]
    return idle_bytes


def peak_resident_bytes() -> int:
    """Peak resident memory of this process; on Linux since `reset_peaks` (VmHWM).

    A job of a sweep is forked: pages that only the import of libraries has read are not counted there.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
