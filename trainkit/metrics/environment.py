"""Which machine, versions and code a run was measured with."""

import functools
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import lightning
import torch


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
