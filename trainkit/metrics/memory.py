"""What memory was used. The only file that asks for it."""

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pynvml
import torch

GIB = 2**30
CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Memory:
    """Peak bytes of live tensors, of the caching allocator, and of the device."""

    allocated: int
    reserved: int
    device: int


def highest(peaks: Sequence[Memory | None]) -> Memory | None:
    """The largest of each figure, or None of nothing."""
    known = [peak for peak in peaks if peak is not None]
    if not known:
        return None
    return Memory(*(max(getattr(peak, f.name) for peak in known) for f in fields(Memory)))


def reset_peaks(device: torch.device) -> None:
    """Begin a new period for `peak_memory`."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif os.access(CLEAR_REFS, os.W_OK):
        CLEAR_REFS.write_text("5")  # Linux: resets VmHWM


def peak_memory(device: torch.device, captured: bool) -> Memory:
    """The peaks since `reset_peaks`; of the device what it says that this process holds now.

    A replayed CUDA graph's tensors live in a private pool that the allocator does not count as allocated, so the idle
    part of such pools is added: it belongs to the graph and to nobody else. In a period in which a graph was captured
    its tensors were counted at the capture already. On a CPU there is no allocator to ask: all three are the peak
    resident memory of the process.
    """
    if device.type != "cuda":
        return Memory(*(peak_resident_bytes(),) * 3)
    pools = 0 if captured else idle_pool_bytes(device)
    reserved = torch.cuda.max_memory_reserved(device)
    return Memory(min(torch.cuda.max_memory_allocated(device) + pools, reserved), reserved, held_bytes(device))


def held_bytes(device: torch.device) -> int:
    """What NVML says that this process holds on the device, its CUDA context included, as nvidia-smi shows it. Where
    NVML does not know this process by its number (in some containers), what all processes hold."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if process.pid == os.getpid() and process.usedGpuMemory is not None:
            return int(process.usedGpuMemory)
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def limit_memory(device: torch.device, limit_gib: float | None) -> None:
    """From now on the allocator takes no more than so many GiB of a GPU, None: than there are. What needs more raises
    torch.OutOfMemoryError, as on a smaller card; the CUDA context is not counted."""
    if device.type == "cuda":
        share = 1.0 if limit_gib is None else limit_gib * GIB / torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(share, 1.0), device)


def idle_pool_bytes(device: torch.device) -> int:
    """Bytes that CUDA graphs' private pools hold on the device beyond their live tensors."""
    return sum(
        segment["total_size"] - segment["allocated_size"]
        for segment in torch.cuda.memory_snapshot()
        if segment["device"] == device.index and tuple(segment["segment_pool_id"]) != (0, 0)
    )


def peak_resident_bytes() -> int:
    """Peak resident memory of this process, on Linux since `reset_peaks`: its VmHWM. In a job of a sweep, which is
    forked, without those pages of libraries that only their import has read."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if "VmHWM" in line)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
