"""Diagnose a network: the lines that keep torch.compile from its best, the reasons, the remedies, and the costs.

    trainkit diagnose model=convnet_mix model.random_head=true [override ...]

Takes the overrides of training. Works on copies, trains a few steps of them, leaves no run and changes nothing. It
prints the findings, then measures; log lines on stderr show the progress. With
--json runs/sweeps/NAME/diagnosis.json the report of that sweep contains the diagnosis. --code writes the captured
graphs and the code generated for them. --trace writes a Chrome trace of a few steady steps, before it measures, for
chrome://tracing or https://ui.perfetto.dev. --stages compiles the network with each of three backends, in processes of
their own with a cold cache, and shows the seconds of each stage of the compile. --no-measure prints the findings alone,
without the gain of compiling and the costs of graph breaks, which take most of the time.
"""

import argparse
import logging
import sys
import warnings
from dataclasses import replace
from pathlib import Path

from trainkit import cli
from trainkit.config.complaints import compose_typed
from trainkit.config.composition import CONF
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.schema import RunConfig
from trainkit.diagnosis.findings import write_diagnosis
from trainkit.report import diagnosis_tables
from trainkit.standard_output import outlive_reader


def main() -> int:
    arguments = _parse_arguments()
    cli.add_working_directory()
    outlive_reader()
    with cli.one_line_errors():
        config = _compose(arguments)
        _check_outputs(arguments)
        with cli.importing():  # after the checks: importing torch takes seconds
            from trainkit.diagnosis import diagnose, graph_code, profiling, stages, trial

        _set_up_logging()
        subject = trial.build_subject(config)
        diagnosis = diagnose.examine(subject)
        diagnosis_tables.print_findings(diagnosis)
        if arguments.trace:
            profiling.write_trace(subject, diagnosis.phases, arguments.trace)
        if not arguments.no_measure:
            diagnosis = diagnose.measure(subject, diagnosis)
        if arguments.stages:
            diagnosis = replace(diagnosis, stages=stages.measure_stages(config))
        code_files = []
        if arguments.code:
            code_files = graph_code.write_code(subject, arguments.code)
    diagnosis_tables.print_measurements(diagnosis)
    if code_files:
        print(f"written: {len(code_files)} files into {arguments.code}")
    if arguments.json:
        write_diagnosis(arguments.json, diagnosis)
        print(f"written: {arguments.json}")
    has_failed = any(phase.error for phase in diagnosis.phases)
    return int(has_failed)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="override", help="group=name or setting=value, as of train.py")
    parser.add_argument("--config-dir", "-cd", metavar="DIR", help="a config directory of your own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the diagnosis into this file too")
    parser.add_argument("--code", type=Path, metavar="DIR", help="write graphs and generated kernels into this folder")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a Chrome trace of a few steady steps")
    parser.add_argument("--stages", action="store_true", help="seconds of the stages of a compile, by backend")
    parser.add_argument("--no-measure", action="store_true", help="explain, and time nothing")
    parser.add_argument("-m", "--multirun", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_intermixed_args()


def _compose(arguments: argparse.Namespace) -> RunConfig:
    """The config of the overrides; ConfigError with all complaints."""
    complaints = []
    overrides = arguments.overrides
    if arguments.config_dir is not None:
        overrides = [f"--config-dir={arguments.config_dir}", *overrides]
    if arguments.multirun:
        complaints.append("-m: a diagnosis is of one network with one setting; leave it out, and diagnose each")
    try:
        config = compose_typed(overrides, CONF)
    except ConfigError as error:
        raise ConfigError(*complaints, *error.complaints) from error
    refuse(complaints)
    return config


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Make the folder of --code; ConfigError for a file or folder that cannot be written."""
    for option in ("json", "trace"):
        file = getattr(arguments, option)
        if file and (file.is_dir() or not file.parent.is_dir()):
            raise ConfigError(f"--{option} = {file}: expected a file in an existing folder")
    if arguments.code:
        try:
            arguments.code.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--code = {arguments.code}: {error.strerror}; give a folder") from error


def _set_up_logging() -> None:
    """Show trainkit's progress on stderr, and drop torch's logs and warnings: the diagnosis reports their causes."""
    logging.getLogger("torch").setLevel(logging.ERROR)
    logging.getLogger("torch._guards").setLevel(logging.CRITICAL)  # as in a run (training/status.py)
    warnings.filterwarnings("ignore", module="torch")
    if cli.rank() == 0:
        progress = logging.getLogger("trainkit")
        progress.addHandler(logging.StreamHandler())
        progress.setLevel(logging.INFO)
        progress.propagate = False  # the network may have set up logging for itself


if __name__ == "__main__":
    sys.exit(main())
