"""Hydra's callback of each sweep: its end says how to compare the rows."""

from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from trainkit import cli


class SweepEnd(Callback):
    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        from trainkit.sweep.search import announce_end  # not for a single run

        if cli.rank() == 0:
            announce_end(config)
