"""Call one network, forward only, and leave a row: the settings of train.py. `python scripts/bench.py --help`."""

import sys

from trainkit.commands.bench import main

if __name__ == "__main__":
    sys.exit(main())
