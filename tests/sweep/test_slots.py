"""Each slot of a sweep has a GPU and cores of its own; what cannot be had is one line."""

import os
import sys

import pytest

from trainkit.config.errors import ConfigError
from trainkit.sweep import slots as slots_of_machine
from trainkit.sweep.slots import Slot, find_slots

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs run side by side on Linux alone")


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """Five cores and three GPUs."""
    monkeypatch.setattr(slots_of_machine, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 8})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2, GPU-9a")


@pytest.mark.parametrize(
    ("parallel", "num_settings", "repeats", "uses_gpus", "slots"),
    [
        (1, 8, 1, True, (Slot(),)),
        ("auto", 1, 1, True, (Slot(),)),
        ("auto", 8, 1, True, (Slot((0,), "0"), Slot((1,), "2"), Slot((2,), "GPU-9a"))),
        (2, 8, 1, True, (Slot((0, 1), "0"), Slot((2, 3), "2"))),
        ("auto", 2, 3, True, (Slot((0, 1), "0"), Slot((2, 3), "2"))),
        ("auto", 1, 4, True, (Slot((0,), "0"), Slot((1,), "2"), Slot((2,), "GPU-9a"))),
        ("auto", 1, 2, True, (Slot((0, 1), "0"), Slot((2, 3), "2"))),
        (2, 8, 1, False, (Slot((0, 1)), Slot((2, 3)))),
    ],
)
def test_the_slots_share_gpus_and_cores(parallel, num_settings, repeats, uses_gpus, slots):
    assert find_slots(parallel, num_settings, repeats, uses_gpus) == slots


@pytest.mark.parametrize("siblings", ["{},{}", "{}-{}"])
def test_the_threads_of_a_core_are_of_one_job(siblings, tmp_path):
    for thread, other in ((0, 3), (1, 8), (2, 2)):
        for core in {thread, other}:
            folder = tmp_path / f"cpu{core}" / "topology"
            folder.mkdir(parents=True)
            (folder / "thread_siblings_list").write_text(siblings.format(thread, other) + "\n")
    assert find_slots(2, 8, 1, uses_gpus=False) == (Slot((0, 3)), Slot((1, 8)))


@pytest.mark.parametrize(
    ("parallel", "uses_gpus", "complaint"),
    [
        (0, True, "0: expected auto, or a number of jobs"),
        (1.5, True, "1.5: expected auto, or a number of jobs"),
        ("all", True, "all: expected auto, or a number of jobs"),
        (True, True, "True: expected auto, or a number of jobs"),
        (4, True, "4: a job needs a GPU, and 3 were found; use auto"),
        ("auto", False, "auto: runs a job on each GPU, and none was found; use a number"),
        (6, False, "6: each job needs a core, and there are 5; use fewer"),
    ],
)
def test_what_cannot_be_had_is_refused(parallel, uses_gpus, complaint):
    with pytest.raises(ConfigError) as refused:
        find_slots(parallel, 8, 1, uses_gpus)
    assert refused.value.complaints == (f"hydra.launcher.parallel = {complaint}",)
