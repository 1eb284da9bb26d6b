"""The benchmark of trainkit's own share of a step, called as a script with tiny sizes."""

import os
import re
import subprocess
import sys

from benchmarks.overhead import StepTimes, print_speed_ups
from tests import forked
from tests.conftest import ROOT

OWN = ("--device", "cpu", "--work", "own")
SCRIPT = ROOT / "benchmarks" / "overhead.py"


def test_prints_a_line_of_ratios_for_each_mode():
    overrides = ["model=simple_net", "data.batch_size=4", "data.image_size=4", "data.num_batches=10"]
    modes = ["--mode", "eager", "--mode", "default", "compile.backend=aot_eager"]
    # Not forked: what its pool of processes sends back is pickled by the name of __main__.
    command = [sys.executable, str(SCRIPT), *OWN, *modes, "--rounds", "2", *overrides]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    machine, header, *lines = done.stdout.splitlines()
    assert machine.endswith("2 rounds")
    assert header.split()[:3] == ["work", "mode", "bare"]
    assert lines[0].startswith("own simple_net x4       eager")
    assert [line.split()[3] for line in lines] == ["eager", "default"]
    for line in lines:
        ratios = re.findall(r"([\d.]+) \(([\d.]+)-([\d.]+)\)", line)
        assert len(ratios) == 4  # step p50, step mean, epoch, Lightning
        for median, low, high in ratios:
            assert 0 < float(low) <= float(median) <= float(high)


def test_the_speed_ups_are_those_of_the_repeats(capsys):
    times = {"eager": [StepTimes(2.0, 2.2), StepTimes(2.0, 2.2)], "default": [StepTimes(1.0, 1.1), StepTimes(1.0, 1.1)]}
    print_speed_ups("own", times)
    expected = "own: default over eager: bare loops 2.000 (2.000-2.000), trainkit's steps 2.000 (2.000-2.000)\n"
    assert capsys.readouterr().out == expected


def test_a_failed_work_is_in_the_exit_status(tmp_path):
    done = forked.python(SCRIPT, *OWN, "--mode", "eager", "model=simple_net", "data.batch_size=0", cwd=tmp_path)
    assert done.returncode == 1
    assert "data.batch_size = 0" in done.stderr
