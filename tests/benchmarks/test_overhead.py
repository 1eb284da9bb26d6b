"""The benchmark of trainkit's own share of a step, called as a script with tiny sizes."""

import os
import re
import subprocess
import sys

import pytest

from benchmarks import overhead
from benchmarks.overhead import StepTimes
from tests import forked
from tests.conftest import ROOT

OWN = ("--device", "cpu", "--work", "own")
SCRIPT = ROOT / "benchmarks" / "overhead.py"


def test_prints_a_line_of_ratios_for_each_mode():
    overrides = ["model=simple_net", "data.batch_size=4", "data.image_size=4", "data.num_batches=10"]
    modes = ["--mode", "eager", "--mode", "default", "compile.backend=aot_eager"]
    command = [sys.executable, str(SCRIPT), *OWN, *modes, "--rounds", "2", *overrides]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    machine, header, *lines = done.stdout.splitlines()
    assert machine.endswith("2 rounds")
    assert header.split()[:3] == ["work", "mode", "bare"]
    assert [line.split()[:4] for line in lines] == [["own", "simple_net", "x4", mode] for mode in ("eager", "default")]
    for line in lines:
        ratios = re.findall(r"([\d.]+) \(([\d.]+)-([\d.]+)\)", line)
        assert len(ratios) == 4  # step p50, step mean, epoch, Lightning
        for median, low, high in ratios:
            assert 0 < float(low) <= float(median) <= float(high)


def test_repeats_end_in_the_speed_ups_over_eager(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    times = {
        "eager": [StepTimes(bare_ms=4.0, row_ms=4.4), StepTimes(bare_ms=4.04, row_ms=4.44)],
        "default": [StepTimes(bare_ms=2.0, row_ms=2.2), StepTimes(bare_ms=2.02, row_ms=2.22)],
    }
    measured = []

    def take(work: str, overrides: list[str]) -> StepTimes:
        (mode,) = [override.partition("=")[2] for override in overrides if override.startswith("compile.mode=")]
        measured.append((work, mode))
        return times[mode].pop(0)

    monkeypatch.setattr(overhead, "measure_alone", take)
    words = [*OWN, "--mode", "eager", "--mode", "default", "--repeats", "2"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    with pytest.raises(SystemExit) as end:
        overhead.main()
    assert end.value.code == 0
    assert measured == [("own", "eager"), ("own", "default")] * 2  # interleaved
    ratios = "bare loops 2.000 (1.940-2.061), trainkit's steps 2.000 (1.946-2.056)"
    assert capsys.readouterr().out.splitlines()[-1] == f"own: default over eager: {ratios}"


def test_a_failed_work_is_in_the_exit_status(tmp_path):
    done = forked.python(SCRIPT, *OWN, "--mode", "eager", "model=simple_net", "data.batch_size=0", cwd=tmp_path)
    assert done.returncode == 1
    assert "data.batch_size = 0" in done.stderr
