"""Call one network, forward only, as conf/ and the command line say, measure it, and leave a row: the settings are
those of train.py. `python scripts/bench.py --help`."""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from trainkit import cli
from trainkit.config.composition import FORWARD, run_config
from trainkit.config.fallback import compose_fallback

CONF = Path(__file__).parent.parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF), config_name=FORWARD)
def main(cfg: DictConfig) -> None:
    with cli.one_line_errors():
        config = run_config(cfg)
        fallback = compose_fallback(config, CONF)
        with cli.importing():  # torch with it: what was typed wrongly is said before
            from trainkit.inference.run import run_forward
            from trainkit.report import summary

        row = run_forward(config, fallback)
    summary.print_run(row, Path(config.job.run_dir))
    if row.status != "ok":
        sys.exit(cli.exit_status(row.status, row.error))


if __name__ == "__main__":
    cli.entry(main, CONF, FORWARD)
