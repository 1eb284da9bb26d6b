"""Packages of AOTInductor, and how a C++ compiler has linked them."""

import subprocess
import sys
from zipfile import ZipFile

import pytest

from trainkit.compiler.packages import shares_standard_library

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
