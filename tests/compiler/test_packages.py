"""Packages of AOTInductor, and how a C++ compiler has linked them."""

import subprocess
import sys
from zipfile import ZipFile

import pytest
import torch
from torch import nn

from trainkit.compiler.packages import constant_bytes, export_network, shares_standard_library

WITH_REGEX = """
#include <regex>
extern "C" bool matches(const char* text) { return std::regex_match(text, std::regex("(cpu|cuda)(:[0-9]+)?")); }
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, whose compilers can link their own libstdc++")
@pytest.mark.parametrize(("options", "shares"), [([], True), (["-static-libstdc++"], False)])
def test_a_standard_library_within_a_package_is_found(options, shares, tmp_path):
    library = tmp_path / "model.so"
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library), *options]
    subprocess.run(command, input=WITH_REGEX, text=True, check=True)
    with ZipFile(tmp_path / "package.pt2", "w") as archive:
        archive.write(library, "model/data/aotinductor/model/model.so")
    assert shares_standard_library(tmp_path / "package.pt2") is shares


def test_a_graph_has_the_bytes_of_its_parameters_and_buffers():
    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    program = export_network(network, [torch.randn(2, 4)])
    assert constant_bytes(program) == 4 * (4 * 3 + 3 + 4 * 3) + 8  # num_batches_tracked has 8
