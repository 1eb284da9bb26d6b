"""The names of the processors of this machine, without torch."""

import platform
from collections.abc import Iterable
from pathlib import Path


def cpu_name() -> str:
    """The processor's name by the system."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def gpu_names(gpus: Iterable[str]) -> list[str]:
    """The names of GPUs, given by number or, as CUDA_VISIBLE_DEVICES may, by UUID; none without a driver."""
    import pynvml  # not for every command line

    names = []
    try:
        pynvml.nvmlInit()
        for gpu in gpus:
            if gpu.isdigit():
                handle = pynvml.nvmlDeviceGetHandleByIndex(int(gpu))
            else:
                handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
            names.append(str(pynvml.nvmlDeviceGetName(handle)))
    except pynvml.NVMLError:  # no driver, or no such GPU
        return []
    return names
