"""What keeps torch.compile from its best on a network, line by line: why, what to write instead, what it costs.

    python scripts/diagnose.py model=convnet_mix model.random_head=true [override ...]

Takes the overrides of train.py. Works on copies, trains a few steps of them, leaves no run and changes nothing. What
was found is printed before it is measured; on stderr a line says what is being measured. With
--json runs/sweeps/NAME/diagnosis.json the report of that sweep shows it too. --code writes the graphs that were
captured and the code that was generated for them. --stages compiles the network once more with each of three
backends, in processes of their own with a cold cache, and shows where the seconds go.
"""

import argparse
import logging
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path

from trainkit import cli
from trainkit.config.complaints import compose_typed
from trainkit.config.errors import ConfigError
from trainkit.diagnosis.findings import write_diagnosis
from trainkit.report import diagnosis_tables

CONF = Path(__file__).parent.parent / "conf"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="override", help="group=name or setting=value, as of train.py")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the diagnosis into this file too")
    parser.add_argument("--code", type=Path, metavar="DIR", help="write graphs and generated kernels into this folder")
    parser.add_argument("--stages", action="store_true", help="seconds of the stages of a compile, by backend")
    parser.add_argument("-m", "--multirun", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_intermixed_args()
    with cli.one_line_errors():
        one = ["-m: a diagnosis is of one network with one setting; leave it out, and diagnose each"] * given.multirun
        try:
            config = compose_typed(given.overrides, CONF)
        except ConfigError as error:
            raise ConfigError(*one, *error.complaints) from error
        if one:
            raise ConfigError(*one)
        if given.json and (given.json.is_dir() or not given.json.parent.is_dir()):
            raise ConfigError(f"--json = {given.json}: expected a file in a folder that is there")
        if given.code:
            try:
                given.code.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"--code = {given.code}: {error.strerror}; give a folder") from error
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler says on stderr that it starts and stops
        with cli.importing():  # torch with it: what was typed wrongly is said before
            from trainkit.diagnosis import diagnose, trial

        logging.getLogger("torch").setLevel(logging.ERROR)  # the diagnosis says what torch would log
        logging.getLogger("torch._guards").setLevel(logging.CRITICAL)  # as in a run (ending.quiet)
        warnings.filterwarnings("ignore", module="torch")
        if cli.rank() == 0:
            progress = logging.getLogger("trainkit")
            progress.addHandler(logging.StreamHandler())
            progress.setLevel(logging.INFO)
            progress.propagate = False  # the network may have set up logging for itself
        of = trial.subject(config)
        seen = diagnose.look(of)
        diagnosis_tables.print_findings(seen)
        found = diagnose.measured(of, seen)
        if given.stages:
            found = replace(found, stages=diagnose.stages(config))
        written = diagnose.write_code(of, given.code) if given.code else []
    diagnosis_tables.print_measurements(found)
    if written:
        print(f"written: {len(written)} files into {given.code}")
    if given.json:
        write_diagnosis(given.json, found)
        print(f"written: {given.json}")
    return int(any(phase.error for phase in found.phases))


if __name__ == "__main__":
    sys.exit(main())
