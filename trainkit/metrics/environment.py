"""The machine, the versions and the code of a measurement."""

import functools
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import lightning
import torch


def machine_columns(device: torch.device) -> dict[str, Any]:
    """The columns of a row on machine, versions and code."""
    device_name, num_devices = cpu_name(), os.cpu_count()
    if device.type == "cuda":
        device_name, num_devices = torch.cuda.get_device_name(device), torch.cuda.device_count()
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:  # triton comes with CUDA builds of torch only
        triton_version = None
    commit, dirty = git_state()
    return {
        "device_name": device_name,
        "num_devices": num_devices,
        "torch_version": torch.__version__,
        "triton_version": triton_version,
        "cuda_version": torch.version.cuda,
        "python_version": platform.python_version(),
        "lightning_version": lightning.__version__,
        "git_commit": commit,
        "git_dirty": dirty,
    }


def cpu_name() -> str:
    """The processor's name by the system."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


@functools.cache
def git_state() -> tuple[str | None, bool | None]:
    """The commit of this code and whether files differ from it; None outside of git."""
    try:
        commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return commit, bool(changes)


def _git(*arguments: str) -> str:
    folder = Path(__file__).parent
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
