"""Make the pages of the studies from the rows in FOLDER/NAME: `python scripts/studies.py docs/studies`.

Writes FOLDER/NAME.md for each study of conf/experiment/studies that has rows there, its plots, and FOLDER/README.md.
"""

import argparse
import sys
from pathlib import Path

from trainkit.report.studies import write_pages

STUDIES = Path(__file__).parents[1] / "conf" / "experiment" / "studies"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="one folder of rows for each study")
    options = parser.parse_args()
    try:
        names = sorted(study.stem for study in STUDIES.glob("*.yaml"))
        if not any(list((options.folder / name).rglob("row.json")) for name in names):
            raise ValueError(f"no row.json below {options.folder}/NAME of any study; NAME is one of {', '.join(names)}")
        for path in write_pages(options.folder, STUDIES):
            print(path)
    except ValueError as complaint:
        print(f"studies: {complaint}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
