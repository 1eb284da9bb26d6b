"""The functions of `import trainkit` that compose a config, run it, or diagnose its network."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainkit import cli
from trainkit.config.complaints import compose_typed
from trainkit.config.composition import CONF, FORWARD, hydra_apart
from trainkit.config.fallback import compose_fallback
from trainkit.config.schema import RunConfig

if TYPE_CHECKING:
    from trainkit.diagnosis.findings import Diagnosis
    from trainkit.results.epoch import EpochRecord
    from trainkit.results.row import Row


def compose(overrides: Sequence[str] = (), *, config_dir: str | Path | None = None, forward: bool = False) -> RunConfig:
    """Compose the config that `trainkit train OVERRIDES` runs, or with `forward` the one of `trainkit bench`.

    `config_dir` is a config directory of one's own. The run directory is a new one, unless `hydra.run.dir=DIR` is
    among the overrides. Raises ConfigError with a line for each mistake.
    """
    arguments = list(overrides)
    if config_dir is not None:
        arguments.insert(0, f"--config-dir={config_dir}")
    name = FORWARD if forward else "config"
    with hydra_apart():
        return compose_typed(arguments, CONF, name=name)


def run(config: RunConfig, on_epoch: Callable[["EpochRecord"], None] = lambda record: None) -> "Row":
    """Train and validate as requested, or call the network if the config was composed with `forward`. Return the row,
    which is now in the run directory, `config.job.run_dir`.

    `on_epoch` is called with each epoch's record. A run that fails returns a row with its status and the reason.
    Raises ConfigError, before any device is touched, for a config that cannot run.
    """
    if cli.rank() == 0:  # whose directory all ranks use
        Path(config.job.run_dir).mkdir(parents=True, exist_ok=True)
    if config.job.kind == "forward":
        from trainkit.inference.run import run_forward

        return run_forward(config, compose_fallback(config, CONF))
    from trainkit.training import run as training

    return training.run(config, on_epoch)


def diagnose(config: RunConfig) -> "Diagnosis":
    """Diagnose the config's network: its graph breaks and recompiles with their lines, remedies and costs.

    It works on copies and leaves no run. Global settings of torch and variables of the process are restored;
    compiled code of the process is dropped. Raises ConfigError for a config that cannot run.
    """
    from trainkit.diagnosis import diagnose as diagnosis
    from trainkit.diagnosis.trial import build_subject
    from trainkit.training.process import run_settings

    with run_settings(config):
        return diagnosis.diagnose(build_subject(config))
