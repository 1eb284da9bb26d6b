"""Compare the rows in and below run directories. `python scripts/report.py --help`."""

import sys

from trainkit.interruption import end_on_signals

if __name__ == "__main__":
    with end_on_signals():  # before the imports, which take long
        from trainkit.commands.report import main

        sys.exit(main())
