"""The slots of a machine in which a sweep runs its jobs: one, or several side by side."""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainkit.config.errors import ConfigError

PARALLEL = "hydra.launcher.parallel"
TOPOLOGY = Path("/sys/devices/system/cpu")  # of Linux


@dataclass(frozen=True)
class Slot:
    """Room for one job at a time: the cores that it is pinned to (none: not pinned), and its GPU (None: all)."""

    cores: tuple[int, ...] = ()
    gpu: str | None = None


def find_slots(parallel: Any, num_settings: int, repeats: int, uses_gpus: bool) -> tuple[Slot, ...]:
    """One slot, or `parallel` of them: each with a GPU, if GPUs are used, and an equal share of the cores.
    The hardware threads of one core go to one job, as far as equal shares allow it.

    `auto` is a slot for each GPU. If there are fewer settings than slots, whole repeats run side by side, and there are
    as many slots as those take. Raises ConfigError.
    """
    gpus = visible_gpus() if uses_gpus else []
    if parallel == "auto" and not gpus:
        raise ConfigError(f"{PARALLEL} = auto: runs a job on each GPU, and none was found; use a number")
    num_slots = len(gpus) if parallel == "auto" else parallel
    if not isinstance(num_slots, int) or isinstance(num_slots, bool) or num_slots < 1:
        raise ConfigError(f"{PARALLEL} = {parallel}: expected auto, or a number of jobs")
    if gpus and num_slots > len(gpus):
        raise ConfigError(f"{PARALLEL} = {parallel}: a job needs a GPU, and {len(gpus)} were found; use auto")
    if num_settings < num_slots:
        num_slots = num_settings * min(repeats, num_slots // num_settings)
    if num_slots == 1:
        return (Slot(),)
    if sys.platform != "linux":
        raise ConfigError(f"{PARALLEL} = {parallel}: jobs run side by side on Linux alone; leave it out")
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (_first_thread(core), core))
    share = len(cores) // num_slots
    if share == 0:
        raise ConfigError(f"{PARALLEL} = {parallel}: each job needs a core, and there are {len(cores)}; use fewer")
    slots = []
    for number in range(num_slots):
        gpu = gpus[number] if gpus else None
        slots.append(Slot(tuple(cores[number * share : (number + 1) * share]), gpu))
    return tuple(slots)


def _first_thread(core: int) -> int:
    """The first hardware thread of the physical core that a core of the system is on; itself if that is unknown."""
    path = TOPOLOGY / f"cpu{core}" / "topology" / "thread_siblings_list"  # as 3,35 or 6-7
    if not path.exists():
        return core
    return int(re.split("[,-]", path.read_text())[0])


def visible_gpus() -> list[str]:
    """The GPUs that a job can use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    import pynvml  # not for every command line

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver
        return []
    return [str(index) for index in range(pynvml.nvmlDeviceGetCount())]
