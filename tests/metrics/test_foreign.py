"""The load of other processes is told from the run's own; what cannot be known is not 0."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import pynvml
import pytest
import torch

from trainkit.metrics import foreign
from trainkit.metrics.foreign import (
    UNUSED_BYTES,
    CpuMeter,
    CpuTime,
    ForeignProcesses,
    foreign_cpu_frac,
    root_of_ranks,
    total_foreign,
)

TICKS = os.sysconf("SC_CLK_TCK")
SLURM = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}
SUBMITIT = {"SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": "7", "SUBMITIT_LOCAL_GLOBALID": "0"}
A_SECOND = "import time\nwhile time.process_time() < 1: pass\n"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the load on Linux alone")
@pytest.mark.parametrize("is_own", [True, False])
def test_the_processor_time_of_a_child_is_own_and_that_of_an_orphan_is_not(is_own):
    command = [sys.executable, "-c", A_SECOND]
    if not is_own:  # its parent ends at once
        command = [sys.executable, "-c", f"import subprocess; print(subprocess.Popen({command}).pid)"]
    meter = CpuMeter()
    meter.start()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.read()  # until all that could write have ended
    meter.stop()
    others = meter.time.busy - meter.time.own
    assert (meter.time.own if is_own else others) >= 0.9 * TICKS
    assert (meter.time.own >= 0.9 * TICKS) == is_own
    assert 0 <= meter.time.busy <= meter.time.total


def test_the_share_of_others_is_over_all_epochs_and_unknown_if_they_are_short():
    assert foreign_cpu_frac([CpuTime(total=100, busy=60, own=50), CpuTime(total=300, busy=60, own=30)]) == 0.1
    assert foreign_cpu_frac([CpuTime(total=100, busy=50, own=51)]) == 0.0  # by the rounding of ticks
    assert foreign_cpu_frac([CpuTime(total=90, busy=60, own=50)]) is None
    assert foreign_cpu_frac([]) is None


@pytest.mark.parametrize(
    ("counts", "total"), [([0, 0], 0), ([0, None], None), ([None], None), ([1, None], 1), ([1, 2], 3)]
)
def test_an_unknown_number_is_not_0(counts, total):
    assert total_foreign(counts) == total


def test_on_a_cpu_the_number_of_processes_is_unknown():
    assert ForeignProcesses(torch.device("cpu")).count() is None


OWN = os.getpid()
FIRST, SECOND = 2**22 + 1, 2**22 + 2  # of processes that are not this one's: Linux has no larger id than 2**22


@dataclass
class Nvml:
    """What NVML answers: the ids of a device's processes, and its memory in use."""

    pids: list[int] = field(default_factory=list)
    used_bytes: int = 0
    error: Exception | None = None

    def processes(self, handle: str) -> list[SimpleNamespace]:
        if self.error is not None:
            raise self.error
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def memory(self, handle: str, version: int) -> SimpleNamespace:
        assert version == pynvml.nvmlMemory_v2  # its `used` leaves out what the driver reserves
        return SimpleNamespace(used=self.used_bytes)


@pytest.fixture
def count_processes(monkeypatch):
    """(NVML before the run, NVML now, whether this process used CUDA before) -> the number of foreign processes."""

    def answer_with(nvml: Nvml) -> None:
        monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", nvml.processes)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", nvml.memory)

    def counted(before: Nvml, now: Nvml, is_initialized: bool = False) -> int | None:
        monkeypatch.setattr(foreign, "nvml_handle", lambda device: "handle")
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_initialized)
        answer_with(before)
        processes = ForeignProcesses(torch.device("cuda", 0))
        answer_with(now)
        return processes.count()

    return counted


@pytest.mark.parametrize(
    ("before", "now", "num_processes"),
    [
        ([], [OWN], 0),
        ([], [OWN, FIRST], 1),
        ([FIRST], [OWN], 1),  # that has ended since
        ([FIRST], [OWN, FIRST, SECOND], 2),
    ],
)
def test_processes_are_counted_by_their_ids(before, now, num_processes, count_processes):
    assert count_processes(Nvml(before), Nvml(now)) == num_processes


@pytest.mark.parametrize("listed", [[], [FIRST]], ids=["lists nothing", "lists ids of the host"])
@pytest.mark.parametrize(("used_bytes", "num_processes"), [(0, None), (UNUSED_BYTES, None), (UNUSED_BYTES + 1, 1)])
def test_in_a_container_memory_in_use_before_the_run_is_a_process(used_bytes, num_processes, listed, count_processes):
    """The run's own id is never listed there, so that nobody else was there stays unknown."""
    assert count_processes(Nvml(used_bytes=used_bytes), Nvml(listed, used_bytes=2**30)) == num_processes


def test_in_a_container_an_id_that_was_listed_before_the_run_is_a_process(count_processes):
    assert count_processes(Nvml([FIRST]), Nvml([FIRST, SECOND])) == 1


def test_memory_of_a_process_that_used_the_device_itself_tells_nothing(count_processes):
    in_use = Nvml([FIRST], used_bytes=2**30)  # this process, perhaps
    assert count_processes(in_use, in_use, is_initialized=True) is None
    assert count_processes(Nvml([OWN], used_bytes=2**30), Nvml([OWN]), is_initialized=True) == 0


def test_where_nvml_does_not_answer_the_number_is_unknown(count_processes):
    silent = Nvml(error=pynvml.NVMLError_NotSupported())
    assert count_processes(silent, silent) is None
    assert count_processes(silent, Nvml([OWN])) is None  # before may have been another
    assert count_processes(silent, Nvml([OWN, FIRST])) == 1
    assert count_processes(Nvml(), silent) is None


@pytest.mark.parametrize(
    ("variables", "has_parent"),
    [
        ({}, False),
        ({"TORCHELASTIC_RUN_ID": "1", "LOCAL_RANK": "0"}, True),
        ({"LOCAL_RANK": "0"}, False),  # rank 0, which has started the others
        ({"LOCAL_RANK": "1"}, True),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "2"}, True),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "1"}, False),
        (SUBMITIT | {"SUBMITIT_LOCAL_NTASKS": "2"}, True),
    ],
)
def test_all_ranks_are_below_one_process(variables, has_parent, monkeypatch):
    for name in ("TORCHELASTIC_RUN_ID", "LOCAL_RANK", "SLURM_STEP_NUM_TASKS", "SUBMITIT_EXECUTOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert root_of_ranks() == (os.getppid() if has_parent else os.getpid())
