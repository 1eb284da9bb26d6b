"""The committed reference is what the code makes of itself."""

from pathlib import Path

from trainkit.results.manual import row_page

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_page_of_columns_is_what_the_columns_make():
    assert (REFERENCE / "row.md").read_text(encoding="utf-8") == row_page(), "run python scripts/reference.py"
