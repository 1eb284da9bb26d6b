"""The machine, the versions and the code of a measurement."""

import functools
import hashlib
import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning
import pynvml
import torch

import trainkit
from trainkit.device_names import cpu_name
from trainkit.metrics.memory import nvml_handle


def machine_columns(device: torch.device) -> dict[str, Any]:
    """The columns of a row on machine, versions and code."""
    device_name, num_devices = cpu_name(), os.cpu_count()
    if device.type == "cuda":
        device_name, num_devices = torch.cuda.get_device_name(device), torch.cuda.device_count()
        if sees_own_gpu_alone():
            num_devices = num_gpus_of_machine()
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:  # triton comes with CUDA builds of torch only
        triton_version = None
    commit, dirty = git_state()
    return {
        "device_name": device_name,
        "num_devices": num_devices,
        "machine_id": machine_id(),
        **gpu_columns(device),
        "torch_version": torch.__version__,
        "triton_version": triton_version,
        "cuda_version": torch.version.cuda,
        "python_version": platform.python_version(),
        "lightning_version": lightning.__version__,
        "trainkit_version": trainkit.__version__,
        "git_commit": commit,
        "git_dirty": dirty,
    }


def machine_id() -> str:
    """The digits that tell this machine from others of its kind, until it boots again."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    names = [boot.read_text().strip() if boot.exists() else platform.node()]
    with suppress(pynvml.NVMLError):  # no driver
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            names.append(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))
    return hashlib.sha256(" ".join(names).encode()).hexdigest()[:8]


def gpu_columns(device: torch.device) -> dict[str, Any]:
    """The columns of a GPU by NVML; none on a CPU, and where NVML does not tell."""
    if device.type != "cuda":
        return {}
    try:
        handle = nvml_handle(device)
        index, limit_mw = pynvml.nvmlDeviceGetIndex(handle), pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)
    except pynvml.NVMLError:  # not supported, or not allowed
        return {}
    return {"device_index": int(index), "power_limit_w": limit_mw / 1e3}


def sees_own_gpu_alone() -> bool:
    """Whether torchrun shows each of its processes one GPU (`--virtual-local-rank`): all have local rank 0 then."""
    is_one_of_several = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > 1
    return is_one_of_several and os.environ["LOCAL_RANK"] == "0" and torch.cuda.device_count() == 1


def num_gpus_of_machine() -> int:
    """The GPUs of this machine that torchrun itself sees, where it shows each of its processes one."""
    for variable in Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0"):
        if variable.startswith(b"CUDA_VISIBLE_DEVICES="):
            return variable.count(b",") + 1
    pynvml.nvmlInit()
    return int(pynvml.nvmlDeviceGetCount())


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
