"""Compare the rows in and below run directories. `python scripts/report.py --help`."""

import sys

from trainkit.commands.report import main

if __name__ == "__main__":
    sys.exit(main())
