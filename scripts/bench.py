"""Call one network, forward only, and leave a row: the settings of train.py. `python scripts/bench.py --help`."""

import sys

from trainkit.interruption import end_on_signals

if __name__ == "__main__":
    with end_on_signals():  # before the imports, which take long
        from trainkit.commands.bench import main

        sys.exit(main())
