"""Make the pages of docs/reference: `python scripts/reference.py`."""

import argparse
from pathlib import Path

from trainkit.config.manual import settings_page
from trainkit.diagnosis.manual import remedies_page
from trainkit.results.manual import row_page

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PAGES = {"settings.md": settings_page, "row.md": row_page, "remedies.md": remedies_page}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        path = FOLDER / name
        path.write_text(page(), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
