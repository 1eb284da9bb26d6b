"""Call one network, forward only, as conf/ and the command line say, measure it, and leave a row: the settings are
those of training."""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from trainkit import cli
from trainkit.config.composition import CONF, FORWARD, run_config
from trainkit.config.fallback import compose_fallback
from trainkit.results.optimized import check_optimized


def main() -> int:
    cli.entry(bench, CONF, FORWARD)
    return 0


@hydra.main(version_base="1.3", config_path=str(CONF), config_name=FORWARD)
def bench(cfg: DictConfig) -> float | None:
    """Run, and return the column of the row that `optimized_metric` names."""
    with cli.one_line_errors_of_job():
        config = run_config(cfg)
        check_optimized(config.optimized_metric)
        fallback = compose_fallback(config, CONF)
        with cli.importing():  # torch too: mistakes in the command line are reported before
            from trainkit.inference.run import run_forward
            from trainkit.report import summary

        row = run_forward(config, fallback)
    summary.print_run(row, Path(config.job.run_dir))
    if row.status != "ok":
        cli.end_failed_run(row.run_id, row.status, row.error)
    value: float | None = getattr(row, config.optimized_metric)
    return value


if __name__ == "__main__":
    sys.exit(main())
