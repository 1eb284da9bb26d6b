"""The command `trainkit`, also `python -m trainkit`: the edges of train.py and scripts/ in an installed package."""

import sys
from importlib import import_module

import trainkit
from trainkit.interruption import end_on_signals

COMMANDS = {
    "train": "train a network and leave a row; with -m a sweep, compared at its end",
    "bench": "call a network, forward only: latencies",
    "diagnose": "the lines that keep a network from compiling well, and the remedies",
    "report": "compare the rows in and below directories",
    "advise": "the settings to train with, found within a time budget",
}


def main() -> int:
    arguments = sys.argv[1:] or ["--help"]
    if arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if arguments[0] == "--version":
        print(trainkit.__version__)
        return 0
    if arguments[0] not in COMMANDS:
        print(f"trainkit {arguments[0]}: expected one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    globals()["__spec__"] = None  # else Lightning starts its ranks as `python -m trainkit`, without the command's name
    with end_on_signals():  # before the imports, which take long
        command = import_module(f"trainkit.commands.{arguments[0]}")
        assert command.__file__ is not None
        sys.argv = [command.__file__, *arguments[1:]]  # the file that the jobs of a sweep and Lightning's ranks start
        return command.main()


def _usage() -> str:
    lines = ["usage: trainkit COMMAND [...]; trainkit COMMAND --help", ""]
    for name, about in COMMANDS.items():
        lines.append(f"  {name:10}{about}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
