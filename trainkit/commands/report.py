"""Compare the rows in and below run directories: `trainkit report runs/sweeps/NAME`.

Prints the tables, and writes report.md and report.html into the first directory, or with --into into another.
"""

import argparse
import re
import sys
from pathlib import Path

from trainkit.formatting import clean
from trainkit.report.command import pack_runs, report_changes, report_comparison, report_csv, report_markdown
from trainkit.standard_output import outlive_reader


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="ROWS", help="a directory of runs, or a .jsonl file")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="where report.md and report.html go")
    parser.add_argument("--markdown", action="store_true", help="print Markdown, and write nothing")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write a line for each setting, and nothing else")
    parser.add_argument("--steps", type=positive, metavar="N", help="advise for a training of N steps")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="write the runs into a .jsonl file, and nothing else")
    parser.add_argument("--against", type=Path, metavar="ROWS", help="exit 1 if a setting got slower or larger")
    options = parser.parse_args()
    outlive_reader()
    if options.against and (options.markdown or options.csv or options.steps):
        parser.error("--against compares with a baseline: it goes with none of --markdown, --csv and --steps")
    if options.pack:
        return pack_runs(options.paths, options.pack)
    if options.against:
        return report_changes(options.paths, options.against)
    if options.csv:
        return report_csv(options.paths, options.csv, options.steps)
    if options.markdown:
        return report_markdown(options.paths, options.steps)
    return report_comparison(options.paths, options.into, options.steps)


def positive(text: str) -> int:
    """A whole number above 0 and below a million million, for argparse."""
    digits = text.replace(",", "")
    if not re.fullmatch("[0-9]{1,12}", digits) or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"{clean(text)[:40]}: expected a whole number from 1 to 999,999,999,999")
    return int(digits)


if __name__ == "__main__":
    sys.exit(main())
