"""Print the comparison of the rows in and below run directories: `python scripts/report.py runs/sweeps/NAME`."""

import argparse
import sys
from pathlib import Path

from trainkit.compare import compare
from trainkit.report import markdown_comparison, print_comparison
from trainkit.results import Row, read_rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="DIR", help="a run, a sweep, or a folder of them")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables instead")
    options = parser.parse_args()
    try:
        comparison = compare(_rows(options.paths))
    except ValueError as complaint:
        print(f"report: {complaint}", file=sys.stderr)
        return 2
    if options.markdown:
        print(markdown_comparison(comparison), end="")
    else:
        print_comparison(comparison)
    return 0


def _rows(paths: list[str]) -> list[Row]:
    """The rows of all paths, each once: a row read twice would count as a repeat."""
    rows: list[Row] = []
    roots = {Path(path).resolve(): path for path in paths}
    for root, path in roots.items():
        if not (found := _read(path)):
            raise ValueError(f"no row.json in or below {path}")
        rows += found if not any(parent in roots for parent in root.parents) else []
    return rows


def _read(path: str) -> list[Row]:
    try:
        return read_rows(path)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"a row.json in or below {path} is not a row: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
