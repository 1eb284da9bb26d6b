"""Find the settings to train with, within a time budget: a race of short jobs in fresh processes.

    trainkit advise model=gpt2 data=text data.path=book.txt --budget 20min --steps 50000 --memory-gib 40

Takes the overrides of training. `compile.mode=default,reduce-overhead` narrows a factor, `compile.mode=default` fixes
it. Factors that change the training are tried when they are named: amp=off,bf16 data.batch_size=auto. The same command
goes on where it was stopped. It is `train.py -m hydra/sweeper=race hydra.sweeper.budget_min=20 ...`.
"""

import argparse
import re
import sys
from types import ModuleType

from trainkit import cli
from trainkit.commands import bench, train
from trainkit.config.errors import ConfigError

UNITS_MIN = {"s": 1 / 60, "min": 1.0, "h": 60.0}


def main() -> int:
    arguments = _parse_arguments()
    with cli.one_line_errors():
        overrides = _sweeper_overrides(arguments)
    edge: ModuleType = bench if arguments.forward else train
    assert edge.__file__ is not None
    sys.argv = [edge.__file__, "-m", *overrides]  # the file that the jobs start
    status: int = edge.main()
    return status


def _sweeper_overrides(arguments: argparse.Namespace) -> list[str]:
    """The command line of the sweep. Raises ConfigError for a budget that is none."""
    overrides = ["hydra/sweeper=race", f"hydra.sweeper.budget_min={budget_min(arguments.budget)}"]
    for name in ("steps", "memory_gib", "minimize", "slower_frac", "save_as"):
        value = getattr(arguments, name)
        if value is not None:
            overrides.append(f"hydra.sweeper.{name}={value}")
    overrides += arguments.overrides
    if arguments.config_dir is not None:  # Hydra takes no option between overrides
        overrides.insert(0, f"--config-dir={arguments.config_dir}")
    return overrides


def budget_min(text: str) -> float:
    """Minutes of `20min`, `90s`, `1.5h`, or `20`. Raises ConfigError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|)", text)
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"--budget = {text}: expected a time above 0; try 20min, 90s or 1.5h")
    return float(match[1]) * UNITS_MIN[match[2] or "min"]


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="trainkit advise", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", metavar="override", help="group=name or setting=value, as of train.py")
    parser.add_argument(
        "--budget", default="20min", metavar="TIME", help="20min, 90s, 1.5h; all of it, starts included"
    )
    parser.add_argument(
        "--steps", metavar="N", help="least time for N steps, compile included, in place of speed alone"
    )
    parser.add_argument("--memory-gib", metavar="GIB", help="settings that take more are not advised")
    parser.add_argument("--minimize", choices=("time", "memory"), help="memory: the least of those not much slower")
    parser.add_argument("--slower-frac", metavar="FRACTION", help="how much slower counts as equal; 0.02")
    parser.add_argument("--save-as", metavar="NAME", help="of conf/experiment/tuned/NAME.yaml")
    parser.add_argument("--forward", action="store_true", help="calls of the network alone, by their p99 latency")
    parser.add_argument("--config-dir", "-cd", metavar="DIR", help="a config directory of your own")
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    sys.exit(main())
