"""Train one network as conf/ and the command line request, measure it, and write a row. `python train.py --help`."""

import sys

from trainkit.commands.train import main

if __name__ == "__main__":
    sys.exit(main())
