"""The load of other processes is told from the run's own; what cannot be known is not 0."""

import os
import subprocess
import sys

import pytest
import torch

from trainkit.metrics.foreign import CpuMeter, CpuTime, ForeignProcesses, foreign_cpu_frac, root_of_ranks, total_foreign

TICKS = os.sysconf("SC_CLK_TCK")
SLURM = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}
SUBMITIT = {"SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": "7", "SUBMITIT_LOCAL_GLOBALID": "0"}
HALF_A_SECOND = "import time\nwhile time.process_time() < 0.5: pass\n"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the load on Linux alone")
@pytest.mark.parametrize("is_own", [True, False])
def test_the_processor_time_of_a_child_is_own_and_that_of_an_orphan_is_not(is_own):
    command = [sys.executable, "-c", HALF_A_SECOND]
    if not is_own:  # its parent ends at once
        command = [sys.executable, "-c", f"import subprocess; print(subprocess.Popen({command}).pid)"]
    meter = CpuMeter()
    meter.start()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.read()  # until all that could write have ended
    meter.stop()
    others = meter.time.busy - meter.time.own
    assert (meter.time.own if is_own else others) >= 0.4 * TICKS
    assert (meter.time.own >= 0.4 * TICKS) == is_own
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
