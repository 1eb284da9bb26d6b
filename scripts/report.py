"""Compare the rows in and below run directories: `python scripts/report.py runs/sweeps/NAME`.

Prints the tables, and writes report.md and report.html into the first directory, or with --into into another. With
--against it compares with stored rows instead, and its exit status is 1 if a setting got measurably slower or uses more
memory.
"""

import argparse
import sys
from pathlib import Path

from trainkit.analysis.comparison import compare
from trainkit.analysis.regressions import find_changes
from trainkit.diagnosis.findings import read_diagnoses
from trainkit.report.markdown import markdown_comparison
from trainkit.report.page import write_report
from trainkit.report.terminal import print_changes, print_comparison
from trainkit.results.row import Row
from trainkit.results.runs import Run, has_rows, read_runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="ROWS", help="a directory of runs, or a .jsonl file")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="where report.md and report.html go")
    parser.add_argument("--markdown", action="store_true", help="print Markdown, and write nothing")
    parser.add_argument("--steps", type=positive, metavar="N", help="advise for a training of N steps")
    parser.add_argument("--against", type=Path, metavar="ROWS", help="exit 1 if a setting got slower or larger")
    options = parser.parse_args()
    if options.against and (options.markdown or options.steps):
        parser.error("--against compares with a baseline: it goes neither with --markdown nor with --steps")
    try:
        runs = _runs(options.paths)
        baseline = [] if options.against is None else _runs([options.against])
    except ValueError as complaint:
        print(f"report: {complaint}", file=sys.stderr)
        return 2
    rows = [run.row for run in runs]
    if options.against:
        return _print_against(rows, [run.row for run in baseline])
    comparison = compare(rows, options.steps)
    if options.markdown:
        print(markdown_comparison(comparison), end="")
        return 0
    print_comparison(comparison)
    folder = options.into or _folder(options.paths[0])
    diagnoses, complaints = read_diagnoses(_folder(options.paths[0]))
    folder.mkdir(parents=True, exist_ok=True)
    written = write_report(folder, comparison, {run.row.run_id: run.epochs for run in runs}, diagnoses)
    print(f"written: {' '.join(str(path) for path in written)}")
    for line in complaints:
        print(f"report: {line}; it is left out of the page", file=sys.stderr)
    return 2 if complaints else 0


def positive(word: str) -> int:
    """A whole number above 0, for argparse."""
    if not word.replace(",", "").isdigit() or int(word.replace(",", "")) == 0:
        raise argparse.ArgumentTypeError(f"{word}: expected a whole number above 0")
    return int(word.replace(",", ""))


def _print_against(rows: list[Row], baseline: list[Row]) -> int:
    changes = find_changes(rows, baseline)
    print_changes(changes)
    if not changes.changes and not changes.failed:
        print("report: no setting of the baseline was measured again: nothing was checked", file=sys.stderr)
        return 2
    return int(bool(changes.failed) or any(change.slower or change.uses_more_memory for change in changes.changes))


def _runs(paths: list[Path]) -> list[Run]:
    for path in paths:
        if not has_rows(path):
            raise ValueError(f"no row.json in or below {path}")
    return read_runs(*paths)


def _folder(path: Path) -> Path:
    """The directory of a run or sweep, or of a file."""
    if path.is_dir():
        return path
    return path.parent


if __name__ == "__main__":
    sys.exit(main())
