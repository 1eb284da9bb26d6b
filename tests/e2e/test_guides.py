"""The guide that shows the stages of a compile has the lines that torch writes."""

import re

import pytest
import torch

from tests.conftest import ROOT
from trainkit.diagnosis.graph_code import write_code
from trainkit.diagnosis.trial import build_subject

PAGE = (ROOT / "docs" / "guide" / "what-compile-does.md").read_text()
BLOCK = re.compile(r"^`(training/\S+)`\n\n```\n(.*?)```$", re.DOTALL | re.MULTILINE)
GPU_BLOCK = re.compile(r"^`(training/\S+)` on an H200\n\n```\n(.*?)```$", re.DOTALL | re.MULTILINE)


def settings_of_the_command() -> list[str]:
    """What the page gives to `diagnose.py`."""
    (command,) = re.findall(r"^    python scripts/diagnose.py (.*) --code DIR$", PAGE, re.DOTALL | re.MULTILINE)
    return command.replace("\\\n", "").split()


def check_lines(blocks: list[tuple[str, str]], folder) -> None:
    """Each file has the lines of its block, in their order, with others where the block has `...`."""
    for name, text in blocks:
        written = iter(line.strip() for line in (folder / name).read_text().splitlines())
        for line in text.splitlines():
            assert line == "..." or line in written, f"{name} has no line {line}, or not there"


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the guide has the lines of torch 2.13")
def test_the_guide_to_the_stages_has_the_lines_of_its_command(compose, tmp_path, needs_compiler):
    write_code(build_subject(compose(*settings_of_the_command())), tmp_path)
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == 6
    check_lines(blocks, tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.__version__.startswith("2.11."), reason="the guide has a kernel of torch 2.11")
def test_the_guide_to_the_stages_has_the_lines_of_a_gpu(compose, tmp_path):
    of_cpus = ("trainer.accelerator=", "+compile.options.cpp.")
    settings = [setting for setting in settings_of_the_command() if not setting.startswith(of_cpus)]
    write_code(build_subject(compose(*settings)), tmp_path)
    blocks = GPU_BLOCK.findall(PAGE)
    assert len(blocks) == 1
    check_lines(blocks, tmp_path)
