"""Train one network as conf/ and the command line request, measure it, and write a row."""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from trainkit import cli
from trainkit.config.composition import CONF, run_config
from trainkit.report.progress import ProgressLine, StageLines
from trainkit.results.optimized import check_optimized


def main() -> int:
    cli.entry(train, CONF, find_run_dir=first_run_dir)
    return 0


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def train(cfg: DictConfig) -> float | None:
    """Run, and return the column of the row that `optimized_metric` names."""
    stages = StageLines(is_shown=cli.rank() == 0)
    with cli.one_line_errors_of_job():
        config = run_config(cfg)
        check_optimized(config.optimized_metric)
        stages.show("importing torch and lightning")
        with cli.importing():  # torch too: mistakes in the command line are reported before
            from trainkit.report import outcome, summary
            from trainkit.training.run import run

        with ProgressLine(config.trainer.progress_s, is_shown=cli.rank() == 0) as line:
            line.progress.on_stage = lambda stage: line.above(stages.show, stage)
            max_epochs = config.trainer.max_epochs
            row = run(config, lambda record: line.above(summary.print_epoch, record, max_epochs), line.progress)
    if cli.rank() == 0:
        stages.show("measured")
        summary.print_run(row, Path(config.job.run_dir))
        outcome.print_outcome(row, cli.started("train"), cli.started("diagnose"))
    if row.status != "ok":
        cli.end_failed_run(row.run_id, row.status, row.error)
    value: float | None = getattr(row, config.optimized_metric)
    return value


def first_run_dir() -> str | None:
    """The directory of a run that torchrun has restarted, if it has."""
    from trainkit.distributed.restarts import published_attempt

    attempt = published_attempt()  # by another process: this one has not begun
    return attempt.run_dir if attempt else None


if __name__ == "__main__":
    sys.exit(main())
