"""The benchmark of compile times by ranks, called as a script with a tiny network."""

import os
import re
import subprocess
import sys

from tests.conftest import ROOT


def test_prints_a_line_for_each_cache_and_the_ratios():
    words = ["--ranks", "1", "model=simple_net", "data=synthetic", "data.image_size=4", "data.batch_size=4"]
    command = [sys.executable, str(ROOT / "benchmarks" / "compile_ranks.py"), *words]
    words = ["compile.backend=aot_eager", "trainer.accelerator=cpu"]  # which torch keeps no cache of
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.returncode == 0, done.stderr
    machine, header, cold, from_file, ratios = done.stdout.splitlines()
    assert machine.startswith("simple_net, default, ")
    assert header.split()[:2] == ["ranks", "cache"]
    for line, state in ((cold, "cold"), (from_file, "file")):
        assert re.match(rf" +1 {state} +\d+\.\d\d +\d+\.\d\d +\d+\.\d +0 +0  unwritten: torch has put nothing", line)
    assert re.fullmatch(r"1 ranks: cold 1\.00 of 1 rank's, from the file \d+\.\d\d of cold", ratios)
