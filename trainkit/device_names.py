"""The names of the processors of this machine, without torch."""

import platform
from pathlib import Path


def cpu_name() -> str:
    """The processor's name by the system."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def gpu_names() -> list[str]:
    """The names of the GPUs of this machine; none without a driver."""
    import pynvml  # not for every command line

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver
        return []
    names = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        names.append(str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))))
    return names
