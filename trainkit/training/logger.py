"""The logger of a run: built, given the epochs, and closed with the row."""

from dataclasses import asdict

from lightning.pytorch.loggers import Logger, WandbLogger

from trainkit.compiler.errors import first_line
from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.results.row import Row
from trainkit.training.instantiate import instantiate_node


def build_logger(config: RunConfig) -> Logger | None:
    """The logger of `logger._target_`; None without one."""
    if not config.logger.get("_target_"):
        return None
    logger: Logger = instantiate_node("logger", "", config.logger)
    if isinstance(logger, WandbLogger):
        # Lightning 2.6 passes W&B an argument that W&B has removed and warns about, whatever its value. Lightning's
        # private name; tests/test_workarounds.py fails when this is no longer needed.
        logger._wandb_init.pop("anonymous", None)
        if not config.logger.get("offline"):
            _start_online_run(logger)
    return logger


def _start_online_run(logger: WandbLogger) -> None:
    """Start the W&B run on rank 0 at once: without a key or a network it shall fail before anything is trained."""
    try:
        _ = logger.experiment
    except Exception as error:  # W&B's own classes, which only report/wandb_comparison.py may import
        raise ConfigError(f"logger = wandb_online: {first_line(error)}; `wandb login`, or logger=wandb") from error


def close_logger(logger: Logger | None, row: Row) -> None:
    """Give W&B the row as the run's summary and end its run, so that this process can start another one."""
    # `experiment` would start a run; `_experiment` is None if none was started. Lightning's private name.
    if isinstance(logger, WandbLogger) and logger._experiment is not None:
        exit_code = 0 if row.status == "ok" else 1
        logger.experiment.summary.update(asdict(row))
        logger.experiment.finish(exit_code=exit_code)
