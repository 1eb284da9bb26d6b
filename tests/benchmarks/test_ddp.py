"""The benchmark of a bare DDP loop, called as a script with tiny sizes."""

import re

from tests import forked
from tests.conftest import ROOT


def test_prints_the_step_of_each_arm_and_the_ratio_of_the_best_ones(tmp_path):
    """Of a network that takes a dict of tensors."""
    words = ["--repeats", "1", "--bare", "ddp.static_graph=true", "compile.mode=eager", "trainer.accelerator=cpu"]
    words += ["model=bert", "model.dim=8", "model.depth=1", "model.num_heads=2", "data.batch_size=4", "data.seq_len=4"]
    done = forked.python(ROOT / "benchmarks" / "ddp.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, bare, ours, last = done.stdout.splitlines()
    assert re.fullmatch(r"bare ddp\.static_graph=true: [\d.]+ ms \([\d.]+-[\d.]+\)", bare)
    assert re.fullmatch(r"ours: [\d.]+ ms \([\d.]+-[\d.]+\)", ours)
    assert re.fullmatch(r"ours over bare ddp\.static_graph=true: [\d.]+", last)


def test_a_bare_loop_may_wrap_before_it_compiles(tmp_path):
    words = ["--repeats", "1", "--wrapped", "", "compile.backend=aot_eager", "trainer.accelerator=cpu"]
    words += ["model=simple_cnn", "model.width=4", "data.batch_size=4", "data.image_size=8"]
    done = forked.python(ROOT / "benchmarks" / "ddp.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, wrapped, _, over_bare, last = done.stdout.splitlines()
    assert re.fullmatch(r"wrapped: [\d.]+ ms \([\d.]+-[\d.]+\)", wrapped)
    assert re.fullmatch(r"ours over bare: [\d.]+", over_bare)
    assert re.fullmatch(r"wrapped over bare: [\d.]+", last)
