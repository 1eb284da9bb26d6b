"""The Lightning callbacks that a config names, and the checkpoints of a run."""

from pathlib import Path
from typing import Any

from lightning import Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, StochasticWeightAveraging, WeightAveraging

from trainkit.config.errors import ConfigError
from trainkit.config.open_groups import named_nodes
from trainkit.config.schema import RunConfig
from trainkit.training.instantiate import instantiate_node

AVERAGING = (StochasticWeightAveraging, WeightAveraging)


def build_callbacks(config: RunConfig) -> list[Callback]:
    """The callbacks of `callbacks`, in their order. Raises ConfigError for an object that is none."""
    callbacks = []
    for name, node in named_nodes(config.callbacks).items():
        callback = instantiate_node(f"callbacks.{name}", node["_target_"], node)
        if not isinstance(callback, Callback):
            raise ConfigError(
                f"callbacks.{name}._target_ = {node['_target_']}: gives a {type(callback).__name__}; give a "
                "lightning.pytorch.Callback"
            )
        if config.ddp.shard_optimizer and isinstance(callback, AVERAGING):
            raise ConfigError(
                f"callbacks.{name}: averages all parameters in each step, of which a rank has only its share up to "
                "date with ddp.shard_optimizer = true; leave one of them out"
            )
        callbacks.append(callback)
    return callbacks


def build_checkpoints(config: RunConfig) -> list[ModelCheckpoint]:
    """The callbacks that write the best checkpoints, if the run validates, and `last.ckpt`.

    `save_last` of the former would write `last.ckpt` after epochs alone that are better than all before.
    """
    requested = config.checkpoint
    shared: dict[str, Any] = {"dirpath": Path(config.job.run_dir, "checkpoints"), "enable_version_counter": False}
    callbacks: list[ModelCheckpoint] = []
    if requested.save_last:
        callbacks.append(ModelCheckpoint(filename="last", **shared))
    if requested.every_n_train_steps is not None:
        kind = InsideEpoch if requested.save_last else ModelCheckpoint
        callbacks.append(kind(filename="last", every_n_train_steps=requested.every_n_train_steps, **shared))
    validates = config.trainer.limit_val_batches != 0 and config.data.get("num_val_batches") != 0
    if validates and requested.save_top_k != 0:
        filename = "best"
        if requested.save_top_k != 1:
            filename = "best-{epoch}-{step}"
        best = ModelCheckpoint(
            filename=filename,
            monitor=requested.monitor,
            mode=requested.mode.value,
            save_top_k=requested.save_top_k,
            auto_insert_metric_name=False,
            **shared,
        )
        callbacks.insert(0, best)
    return callbacks


class InsideEpoch(ModelCheckpoint):
    """Writes no checkpoint after the last step of an epoch: a run that a kill ended between that one and the record of
    the epoch would resume with the next epoch, without the record. `last.ckpt` is written after it."""

    def on_train_batch_end(self, trainer: Trainer, *arguments: Any, **named: Any) -> None:
        if not trainer.is_last_batch:
            super().on_train_batch_end(trainer, *arguments, **named)
