"""The loggers of a run: built, given the epochs, and closed with the row."""

from collections.abc import Sequence
from dataclasses import asdict

from lightning.pytorch.loggers import Logger, WandbLogger

from trainkit.compiler.errors import first_line
from trainkit.config.errors import ConfigError
from trainkit.config.open_groups import named_nodes
from trainkit.config.schema import RunConfig
from trainkit.results.row import Row
from trainkit.training.instantiate import instantiate_node


def build_loggers(config: RunConfig) -> list[Logger]:
    """The loggers of `logger`, in their order. Raises ConfigError for an object that is none."""
    loggers = []
    for name, node in named_nodes(config.logger).items():
        logger = instantiate_node(f"logger.{name}", node["_target_"], node)
        if not isinstance(logger, Logger):
            raise ConfigError(
                f"logger.{name}._target_ = {node['_target_']}: gives a {type(logger).__name__}; give a Logger of "
                "lightning.pytorch.loggers"
            )
        if isinstance(logger, WandbLogger):
            # Lightning 2.6 passes W&B an argument that W&B has removed and warns about, whatever its value. Lightning's
            # private name; tests/test_workarounds.py fails when this is no longer needed.
            logger._wandb_init.pop("anonymous", None)
            _start_run(name, logger, is_offline=bool(node.get("offline")))
        loggers.append(logger)
    return loggers


def _start_run(name: str, logger: WandbLogger, is_offline: bool) -> None:
    """Start the W&B run on rank 0 at once: without a key or a network, or with a name that W&B refuses, it shall fail
    before anything is trained."""
    way_out = f"choose another logger.{name}.*" if is_offline else "`wandb login`, or logger=wandb"
    try:
        _ = logger.experiment
    except Exception as error:  # W&B's own classes, which only report/wandb_comparison.py may import
        raise ConfigError(f"logger.{name} = {logger._project}: {first_line(error)}; {way_out}") from error


def close_loggers(loggers: Sequence[Logger], row: Row) -> None:
    """Give W&B the row as the run's summary and end its run, so that this process can start another one."""
    for logger in loggers:
        # `experiment` would start a run; `_experiment` is None if none was started. Lightning's private name.
        if isinstance(logger, WandbLogger) and logger._experiment is not None:
            exit_code = 0 if row.status == "ok" else 1
            logger.experiment.summary.update(asdict(row))
            logger.experiment.finish(exit_code=exit_code)
