"""The benchmark of a bare DDP loop, called as a script with tiny sizes."""

import re

import pytest

from tests import forked
from tests.conftest import ROOT


def test_prints_the_step_of_each_arm_and_the_ratio_of_the_best_ones(tmp_path):
    """Of a network that takes a dict of tensors."""
    words = ["--repeats", "1", "--bare", "ddp.static_graph=true", "--wrapped", "", "compile.mode=eager"]
    words += ["trainer.accelerator=cpu"]
    words += ["model=bert", "model.dim=8", "model.depth=1", "model.num_heads=2", "data.batch_size=4", "data.seq_len=4"]
    done = forked.python(ROOT / "benchmarks" / "ddp.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, bare, wrapped, ours, over_bare, last = done.stdout.splitlines()
    assert re.fullmatch(r"bare ddp\.static_graph=true: [\d.]+ ms \([\d.]+-[\d.]+\)", bare)
    assert re.fullmatch(r"ours: [\d.]+ ms \([\d.]+-[\d.]+\)", ours)
    assert re.fullmatch(r"wrapped: [\d.]+ ms \([\d.]+-[\d.]+\)", wrapped)
    assert re.fullmatch(r"ours over bare ddp\.static_graph=true: [\d.]+", over_bare)
    assert re.fullmatch(r"wrapped over bare ddp\.static_graph=true: [\d.]+", last)


ORDER = """
import os, sys
from benchmarks import ddp
ddp.compile_bare = lambda net, config: os.write(1, f"compiles a {type(net).__name__}\\n".encode())
ddp.WARM_UP = ddp.STEPS = 1
ddp.run_bare(sys.argv[1:])
"""


@pytest.mark.parametrize(("options", "compiled"), [([], "Objective"), (["--wrap-first"], "DistributedDataParallel")])
def test_a_bare_loop_compiles_before_it_wraps_or_after(options: list[str], compiled: str, tmp_path):
    (tmp_path / "order.py").write_text(ORDER)
    words = ["model=simple_cnn", "model.width=4", "data=synthetic", "data.batch_size=4", "data.image_size=8"]
    words += ["data.num_batches=2", "trainer.accelerator=cpu", f"hydra.run.dir={tmp_path}"]
    done = forked.python(tmp_path / "order.py", *options, *words, cwd=tmp_path, ranks=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"compiles a {compiled}") == 2
