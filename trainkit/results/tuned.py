"""Settings that a race found, used elsewhere than where they were measured."""

import sys

from trainkit.config.schema import TunedConfig
from trainkit.results.row import Row


def warn_of_other_machine(tuned: TunedConfig | None, row: Row) -> None:
    """Print a line on stderr if the experiment of a race runs on another device, or with another version of torch."""
    if tuned is None or (tuned.device, tuned.torch) == (row.device_name, row.torch_version):
        return
    print(
        f"tuned: these settings were found on {tuned.device} with torch {tuned.torch}, and this is {row.device_name} "
        f"with torch {row.torch_version}; run the race again: trainkit advise",
        file=sys.stderr,
    )
