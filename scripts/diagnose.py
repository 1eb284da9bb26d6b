"""Diagnose a network: what keeps torch.compile from its best. `python scripts/diagnose.py --help`."""

import sys

from trainkit.commands.diagnose import main

if __name__ == "__main__":
    sys.exit(main())
