"""The benchmark of trainkit's own share of a step, called as a script with tiny sizes."""

import os
import re
import subprocess
import sys

from tests.conftest import ROOT


def overhead(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "overhead.py"), "--device", "cpu", "--work", "own", *words]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)


def test_prints_a_line_of_ratios_for_each_mode_and_the_speed_ups_of_repeats():
    overrides = ["model=simple_net", "data.batch_size=4", "data.image_size=4", "data.num_batches=10"]
    modes = ["--mode", "eager", "--mode", "default", "compile.backend=aot_eager"]
    done = overhead(*modes, "--rounds", "2", "--repeats", "2", *overrides)
    assert done.returncode == 0, done.stderr
    machine, header, line, *_, last = done.stdout.splitlines()
    assert machine.endswith("2 rounds")
    assert header.split()[:3] == ["work", "mode", "bare"]
    assert line.startswith("own simple_net x4       eager")
    ratios = re.findall(r"([\d.]+) \(([\d.]+)-([\d.]+)\)", line)
    assert len(ratios) == 4  # step p50, step mean, epoch, Lightning
    for median, low, high in ratios:
        assert 0 < float(low) <= float(median) <= float(high)
    ratio = r"[\d.]+ \([\d.]+-[\d.]+\)"
    assert re.fullmatch(rf"own: default over eager: bare loops {ratio}, trainkit's steps {ratio}", last)


def test_a_failed_work_is_in_the_exit_status():
    done = overhead("--mode", "eager", "model=simple_net", "data.batch_size=0")
    assert done.returncode == 1
    assert "data.batch_size = 0" in done.stderr
