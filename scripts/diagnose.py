"""Diagnose a network: what keeps torch.compile from its best. `python scripts/diagnose.py --help`."""

import sys

from trainkit.interruption import end_on_signals

if __name__ == "__main__":
    with end_on_signals():  # before the imports, which take long
        from trainkit.commands.diagnose import main

        sys.exit(main())
