"""Make the pages of the studies from their rows: `python scripts/studies.py measurements --into docs/studies`.

A study of conf/experiment/studies has its rows in ROWS/NAME.jsonl or below ROWS/NAME. Writes FOLDER/NAME.md for each of
them, its plots and figures in FOLDER/NAME, and FOLDER/README.md.
"""

import argparse
import sys
from pathlib import Path

from trainkit.report.studies import rows_of, write_pages
from trainkit.results.runs import has_rows

STUDIES = Path(__file__).parents[1] / "conf" / "experiment" / "studies"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", metavar="ROWS", type=Path, help="one folder or one .jsonl file of rows for each study")
    parser.add_argument("--into", metavar="FOLDER", type=Path, help="where the pages go; ROWS itself if left out")
    options = parser.parse_args()
    try:
        names = sorted(study.stem for study in STUDIES.glob("*.yaml"))
        if not any(has_rows(rows_of(options.rows, name)) for name in names):
            raise ValueError(f"no rows in {options.rows} of any study; NAME is one of {', '.join(names)}")
        for path in write_pages(options.rows, STUDIES, options.into or options.rows):
            print(path)
    except ValueError as complaint:
        print(f"studies: {complaint}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
