"""Train one network as conf/ and the command line request, measure it, and write a row. `python train.py --help`."""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from trainkit import cli
from trainkit.config.composition import run_config


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    with cli.one_line_errors():
        config = run_config(cfg)
        with cli.importing():  # torch too: mistakes in the command line are reported before
            from trainkit.report import summary
            from trainkit.report.progress import ProgressLine
            from trainkit.training.run import run

        with ProgressLine(config.trainer.progress_s, is_shown=cli.rank() == 0) as line:
            max_epochs = config.trainer.max_epochs
            row = run(config, lambda record: line.above(summary.print_epoch, record, max_epochs), line.progress)
    if cli.rank() == 0:
        summary.print_run(row, Path(config.job.run_dir))
    if row.status != "ok":
        sys.exit(cli.exit_status(row.status, row.error))


def first_run_dir() -> str | None:
    """The directory of a run that torchrun has restarted."""
    from trainkit.distributed.restarts import first_attempt

    attempt = first_attempt()
    return attempt.run_dir if attempt else None


if __name__ == "__main__":
    cli.entry(main, Path(__file__).parent / "conf", find_run_dir=first_run_dir)
