"""The benchmark of a bare DDP loop, called as a script with tiny sizes."""

import os
import re
import subprocess
import sys

from tests.conftest import ROOT


def test_prints_the_step_of_each_arm_and_the_ratio_of_the_best_ones(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / "ddp.py"), "--repeats", "1", "--bare", "ddp.static_graph=true"]
    command += ["model=simple_net", "compile.mode=eager", "data.batch_size=4", "data.image_size=4"]
    command += ["trainer.accelerator=cpu"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, bare, ours, last = done.stdout.splitlines()
    assert re.fullmatch(r"bare ddp\.static_graph=true: [\d.]+ ms \([\d.]+-[\d.]+\)", bare)
    assert re.fullmatch(r"ours: [\d.]+ ms \([\d.]+-[\d.]+\)", ours)
    assert re.fullmatch(r"ours over bare ddp\.static_graph=true: [\d.]+", last)
