"""The benchmark of a bare DDP loop, called as a script with tiny sizes."""

import re

from tests import forked
from tests.conftest import ROOT


def test_prints_the_step_of_each_arm_and_the_ratio_of_the_best_ones(tmp_path):
    words = ["--repeats", "1", "--bare", "ddp.static_graph=true", "model=simple_net", "compile.mode=eager"]
    words += ["data.batch_size=4", "data.image_size=4", "trainer.accelerator=cpu"]
    done = forked.python(ROOT / "benchmarks" / "ddp.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, bare, ours, last = done.stdout.splitlines()
    assert re.fullmatch(r"bare ddp\.static_graph=true: [\d.]+ ms \([\d.]+-[\d.]+\)", bare)
    assert re.fullmatch(r"ours: [\d.]+ ms \([\d.]+-[\d.]+\)", ours)
    assert re.fullmatch(r"ours over bare ddp\.static_graph=true: [\d.]+", last)
