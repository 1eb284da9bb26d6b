"""The Lightning Trainers of a run."""

from difflib import get_close_matches
from inspect import signature
from typing import Any

from lightning import Trainer
from lightning.pytorch.callbacks import Callback, Checkpoint
from lightning.pytorch.profilers import Profiler

from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.distributed.environments import cluster_environments
from trainkit.distributed.strategies import build_strategy
from trainkit.distributed.topology import Devices
from trainkit.distributed.watch import Watch
from trainkit.metrics.communication import WARM_UP_STEPS, WINDOW_STEPS, CommunicationWindow
from trainkit.metrics.meters import Meters
from trainkit.training.callbacks import build_callbacks, build_checkpoints
from trainkit.training.checkpoint_file import WholeCheckpointIO
from trainkit.training.logger import build_loggers
from trainkit.training.loop import StepLoop
from trainkit.training.progress import ProgressWriter
from trainkit.training.recorder import Recorder
from trainkit.training.step_log import StepLog
from trainkit.training.watching import StopSignals, WatchedFit


def build_trainer(
    config: RunConfig,
    devices: Devices,
    watch: Watch,
    meters: Meters,
    recorder: Recorder,
    progress: ProgressWriter,
) -> Trainer:
    """The Trainer of a run, which the meters measure.

    Callbacks are called in this order: the run's own, the user's, those that write checkpoints.
    """
    log = StepLog(config.trainer.log_every_n_steps)
    own_callbacks = [WatchedFit(watch), meters, log, recorder, progress]
    callbacks = [*own_callbacks, *build_callbacks(config), *build_checkpoints(config)]
    trainer = Trainer(
        max_epochs=config.trainer.max_epochs,
        limit_val_batches=config.trainer.limit_val_batches,
        log_every_n_steps=config.trainer.log_every_n_steps,
        val_check_interval=config.trainer.val_check_interval,
        callbacks=callbacks,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        logger=build_loggers(config) or False,
        **shared_arguments(config, devices, WholeCheckpointIO()) | _other_arguments(config),
    )
    trainer.fit_loop.epoch_loop = StepLoop(trainer, meters.batch_meter, watch.stop, progress, log)
    _replace_signals(trainer, watch)
    return trainer


def _other_arguments(config: RunConfig) -> dict[str, Any]:
    """Those of `trainer.kwargs`. Raises ConfigError for one that Lightning's Trainer does not take."""
    taken = signature(Trainer).parameters
    for name, value in config.trainer.kwargs.items():
        if name not in taken:
            close = get_close_matches(name, taken, n=1)
            way_out = f"did you mean {close[0]}?" if close else "see lightning.Trainer"
            raise ConfigError(f"trainer.kwargs.{name} = {value}: no argument of Lightning's Trainer; {way_out}")
    return config.trainer.kwargs


def _replace_signals(trainer: Trainer, watch: Watch) -> None:
    """Have the Watch handle signals. `_signal_connector` is a private name of Lightning 2.6."""
    trainer._signal_connector = StopSignals(trainer, watch.stop)  # type: ignore[assignment]


def build_profiling_trainer(config: RunConfig, devices: Devices, watch: Watch, profiler: Profiler) -> Trainer:
    """A Trainer for one more epoch, without validation, checkpoints or a logger."""
    trainer = Trainer(
        max_epochs=1,
        max_steps=config.trainer.max_steps,
        limit_val_batches=0,
        enable_checkpointing=False,
        profiler=profiler,
        logger=False,
        **shared_arguments(config, devices),
    )
    _replace_signals(trainer, watch)
    return trainer


def build_checking_trainer(config: RunConfig, devices: Devices, callback: Callback) -> Trainer:
    """A Trainer that trains on a few batches as the run's does, without accumulation, checkpoints or a logger."""
    arguments = shared_arguments(config, devices) | {"accumulate_grad_batches": 1, "limit_train_batches": None}
    return Trainer(max_epochs=1, callbacks=[callback], enable_checkpointing=False, logger=False, **arguments)


def build_window_trainer(config: RunConfig, devices: Devices, watch: Watch, window: CommunicationWindow) -> Trainer:
    """A Trainer with the run's own loop for the steps of a window, over as many epochs as they take."""
    meters = Meters()
    trainer = Trainer(
        max_epochs=WARM_UP_STEPS + WINDOW_STEPS,
        limit_val_batches=0,
        enable_checkpointing=False,
        callbacks=[meters, window],
        logger=False,
        **shared_arguments(config, devices),
    )
    trainer.fit_loop.epoch_loop = StepLoop(trainer, meters.batch_meter, watch.stop)
    _replace_signals(trainer, watch)
    return trainer


def shared_arguments(config: RunConfig, devices: Devices, *plugins: Any) -> dict[str, Any]:
    """The arguments that all Trainers of a run share, and these plugins."""
    accelerator = "gpu" if devices.type == "cuda" else "cpu"
    per_node, num_nodes = devices.per_node, devices.num_nodes
    if devices.one_visible:  # Lightning looks for `per_node` GPUs in each process
        per_node, num_nodes = 1, devices.world_size
    return {
        "accelerator": accelerator,
        "devices": per_node,
        "num_nodes": num_nodes,
        "strategy": build_strategy(config, devices.world_size),
        "plugins": [*cluster_environments(), *plugins],
        "deterministic": config.trainer.deterministic,
        "precision": config.amp.precision,
        "limit_train_batches": config.trainer.limit_train_batches,
        "accumulate_grad_batches": config.trainer.accumulate_grad_batches,
        "gradient_clip_val": config.trainer.gradient_clip_val,
        "default_root_dir": config.job.run_dir,
        "num_sanity_val_steps": 0,
        "inference_mode": config.ddp.strategy != "fsdp2",  # gathered parameters are saved for a later backward
        "use_distributed_sampler": "module"
        in config.data,  # whose loaders Lightning splits; the others split themselves
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
