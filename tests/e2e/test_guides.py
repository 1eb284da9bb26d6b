"""The guide that shows the stages of a compile has the lines that torch writes."""

import re

import pytest
import torch

from tests.conftest import ROOT
from trainkit.diagnosis.graph_code import write_code
from trainkit.diagnosis.trial import build_subject

PAGE = (ROOT / "docs" / "guide" / "what-compile-does.md").read_text()
BLOCK = re.compile(r"^`(training/\S+)`\n\n```\n(.*?)```$", re.DOTALL | re.MULTILINE)


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the guide has the lines of torch 2.13")
def test_the_guide_to_the_stages_has_the_lines_of_its_command(compose, tmp_path, needs_compiler):
    (command,) = re.findall(r"^    python scripts/diagnose.py (.*) --code DIR$", PAGE, re.DOTALL | re.MULTILINE)
    write_code(build_subject(compose(*command.replace("\\\n", "").split())), tmp_path)
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == 6
    for name, text in blocks:
        written = iter(line.strip() for line in (tmp_path / name).read_text().splitlines())
        for line in text.splitlines():
            assert line == "..." or line in written, f"{name} has no line {line}, or not there"  # in their order
