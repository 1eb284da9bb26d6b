"""docs/reference/remedies.md."""

from tests.conftest import ROOT
from trainkit.diagnosis.manual import SECTIONS, remedies_page


def test_the_committed_page_is_the_one_that_the_remedies_make():
    committed = (ROOT / "docs" / "reference" / "remedies.md").read_text(encoding="utf-8")
    assert remedies_page() == committed, "run python scripts/reference.py"


def test_each_remedy_has_a_line():
    lines = remedies_page().splitlines()
    for remedies in SECTIONS.values():
        for remedy in remedies:
            cause = remedy.cause.replace("_", "\\_")
            assert any(line.startswith(f"| {cause} |") for line in lines), remedy.cause
