"""Train one network as conf/ and the command line request, measure it, and write a row. `python train.py --help`."""

import sys

from trainkit.interruption import end_on_signals

if __name__ == "__main__":
    with end_on_signals():  # before the imports, which take long
        from trainkit.commands.train import main

        sys.exit(main())
