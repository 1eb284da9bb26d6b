"""Every known defect is named by its line and its remedy, which takes it away; where there is none, none is found."""

from pathlib import Path

import pytest

from tests import defects
from trainkit.diagnose import look, subject

SOURCE = Path(defects.__file__).read_text().splitlines()
MENDED = [name for name in vars(defects) if name.endswith("Mended")]
DEFECTS = [name.removesuffix("Mended") for name in MENDED]
CLEAN = [name for name in vars(defects) if name.startswith("Clean")]
RECOMPILING = ("attribute counter", "list that grows", "argument or global number that changes")


def of(compose, name: str, *overrides: str):
    words = (f"model._target_=tests.defects.{name}", "compile.backend=aot_eager", "data.batch_size=16", *overrides)
    return subject(compose(*words))


def defect(name: str) -> tuple[int, str]:
    """The marked line of a class, and the cause that its comment names."""
    first = SOURCE.index(f"class {name}(Classifier):")
    line = next(number for number in range(first, len(SOURCE)) if "  # DEFECT " in SOURCE[number])
    return line + 1, SOURCE[line].partition("  # DEFECT ")[2]


def test_there_are_enough_of_each():
    assert len(DEFECTS) >= 12
    assert len(CLEAN) >= 6


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_named_by_its_line_and_its_remedy(name, compose):
    line, cause = defect(name)
    seen = look(of(compose, name))
    found = [f for f in seen.findings if f.cause != "value that a graph break brought back"]
    assert {(f.file, f.line, f.cause) for f in found} == {(defects.__file__, line, cause)}, seen.findings
    assert all(f.kind == ("recompile" if cause in RECOMPILING else "graph break") for f in found)
    assert all(f.code == SOURCE[line - 1].strip() for f in found)
    assert [phase.error for phase in seen.phases] == [None, None]


@pytest.mark.parametrize("name", [*MENDED, *CLEAN])
def test_the_remedy_and_a_clean_network_have_nothing_to_find(name, compose):
    seen = look(of(compose, name))
    assert seen.findings == []
    assert [phase.num_graphs for phase in seen.phases] == [1, 1]
