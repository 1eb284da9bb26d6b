"""One run: from a typed config to a typed row, on success and on failure."""

import copy
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.profilers import AdvancedProfiler, PyTorchProfiler, SimpleProfiler
from torch import nn

from trainkit.compiler import dynamo
from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.config.validation import CALLED_BY_TRAIN, check
from trainkit.distributed.collectives import gather, leave_process_group
from trainkit.distributed.launch import join_launch
from trainkit.distributed.restarts import meeting_apart
from trainkit.distributed.watch import Watch
from trainkit.inputs import to_device
from trainkit.metrics.communication import CommunicationWindow
from trainkit.metrics.foreign import total_foreign
from trainkit.metrics.memory import limit_memory
from trainkit.metrics.timer import Breakdown
from trainkit.results.columns import columns
from trainkit.results.epoch import EpochRecord
from trainkit.results.files import end_row, fail_row
from trainkit.results.progress import Progress
from trainkit.results.requested import requested_fields
from trainkit.results.row import Row
from trainkit.training import artifacts, numerics
from trainkit.training.agreement import RankTraining, check_ranks
from trainkit.training.checkpoint import TrainingEndedError
from trainkit.training.components import Components, Listeners, build
from trainkit.training.logger import close_loggers
from trainkit.training.process import run_settings
from trainkit.training.restart import config_of_attempt, row_of_ended_training
from trainkit.training.status import print_error, raise_config_error
from trainkit.training.trainer import build_profiling_trainer, build_window_trainer
from trainkit.training.watching import record_error

PROFILERS = {"simple": SimpleProfiler, "advanced": AdvancedProfiler, "pytorch": PyTorchProfiler}  # of trainer.profiler


def run(
    config: RunConfig,
    on_epoch: Callable[[EpochRecord], None] = lambda record: None,
    progress: Progress | None = None,
) -> Row:
    """Train and validate as requested, and return the row, which is now in the run directory.

    `on_epoch` is called with each epoch's record on rank 0, and `progress` is kept up to date. A run that fails returns
    a row with its status and its reason. Raises ConfigError, before any device is touched, for a config that cannot
    run.
    """
    check(config)
    if config.job.kind == "forward":
        raise ConfigError(CALLED_BY_TRAIN)
    with run_settings(config):
        launch = join_launch(config)
        config = replace(config, job=replace(config.job, run_dir=str(launch.run_dir)))
        request = Row(status="interrupted", **requested_fields(config))
        with Watch(launch, request, config.ddp.timeout_s) as watch, meeting_apart():
            return run_watched(config, Listeners(on_epoch, progress or Progress()), watch, request)


def run_watched(config: RunConfig, listeners: Listeners, watch: Watch, request: Row) -> Row:
    """Train, validate and write the last row. `request` is the row of a run that ends before it has one."""
    components: Components | None = None
    error: BaseException | None = None
    with ExitStack() as contexts:
        try:
            watch.begin()
            config = config_of_attempt(config)
            listeners.progress.on_stage(f"building {config.job.model} and the data {config.job.data}")
            components = build(config, listeners, watch, contexts)
            fit(components, listeners.progress.on_stage)
        except (Exception, KeyboardInterrupt, SystemExit) as caught:  # a failure is a row
            error = caught
        if isinstance(error, TrainingEndedError):
            ended_row = row_of_ended_training(config)
            if ended_row is not None:
                watch.end(is_ok=True)
                return ended_row
        if error is not None:
            record_error(watch, error)
        if components is None:
            return finish_unbuilt(watch, request, error)
        return finish(components, error)


def fit(components: Components, on_stage: Callable[[str], None]) -> None:
    """Train, then measure the breakdown of a step and its communication, and check the numerics, if requested."""
    task, recorder, config = components.task, components.recorder, components.config
    device = components.trainer.strategy.root_device
    if config.compile.mode != "eager":
        on_stage("starting torch.compile up, once in a process; it is not part of the compile time")
    components.trainer.fit(task, datamodule=components.data, ckpt_path=components.ckpt_path, weights_only=True)
    recorder.end_fit(task)
    recorder.add({"foreign_processes": total_foreign(gather(components.foreign_processes.count()))})
    if artifacts.is_requested(config) and recorder.artifacts.artifacts is None:
        recorder.add(asdict(artifacts.save_artifacts(config, device)))
    if config.meters.breakdown:
        on_stage("training one more epoch, which splits the step into forward, backward and optimizer")
        recorder.add(measure_breakdown(components))
    if config.trainer.profiler is not None:
        on_stage(f"training one more epoch under the profiler {config.trainer.profiler}")
        write_profile(components, config.trainer.profiler)
    if config.meters.communication and components.devices.type == "cuda":
        on_stage("measuring what the GPU does in a step")
        recorder.add(measure_communication(components))
    if components.untrained_net is not None:
        on_stage("comparing the first steps with eager and float64")
        check_numbers(components, components.untrained_net)


def measure_breakdown(components: Components) -> dict[str, Any]:
    """Train one more epoch, and return its forward, backward and optimizer times over all ranks."""
    breakdown = Breakdown(components.config.trainer.accumulate_grad_batches)
    trainer = build_profiling_trainer(components.config, components.devices, components.watch, breakdown)
    trainer.fit(components.task, datamodule=components.data)
    return _over_ranks(breakdown.summary_ms())


def write_profile(components: Components, name: str) -> None:
    """Train one more epoch under Lightning's profiler of this name, which writes into RUN_DIR/profile.

    Of several ranks each names its file by its rank: Lightning's own number in the name is that of the rank on its
    host, and under `torchrun --virtual-local-rank` 0 for all.
    """
    filename = name
    if components.devices.world_size > 1:
        filename = f"{name}-rank{components.trainer.global_rank}"
    profiler = PROFILERS[name](dirpath=Path(components.config.job.run_dir, "profile"), filename=filename)
    trainer = build_profiling_trainer(components.config, components.devices, components.watch, profiler)
    trainer.fit(components.task, datamodule=components.data)


def measure_communication(components: Components) -> dict[str, Any]:
    """Train some more steps, and return the time of a step in which a GPU did nothing but communicate, and that of its
    other work."""
    window = CommunicationWindow()
    trainer = build_window_trainer(components.config, components.devices, components.watch, window)
    trainer.fit(components.task, datamodule=components.data)
    return _over_ranks({"exposed_comm_ms": window.exposed_comm_ms(), "compute_ms": window.compute_ms()})


def _over_ranks(own: dict[str, float | None]) -> dict[str, Any]:
    """Columns of this rank as those of all ranks, each by its rule."""
    ranks = gather(own)
    reduced = {}
    for name in own:
        values = [rank[name] for rank in ranks]
        reduced[name] = columns(Row)[name].over_ranks.reduce(values)
    return reduced


def check_numbers(components: Components, untrained_net: nn.Module) -> None:
    """Compare the first steps of the compiled network with eager, on the batches that the run began with, and the ranks
    with each other."""
    config, recorder = components.config, components.recorder
    code = recorder.code_of_training()
    components.compiler.restore()
    dynamo.reset()
    device = components.trainer.strategy.root_device
    # In training mode each compile mode would draw other random numbers.
    prepare = copy.deepcopy(components.data.prepare).to(device).eval()
    batches = []
    for inputs, targets in islice(components.data.train_dataloader(), numerics.STEPS):
        batches.append((prepare(to_device(inputs, device)), to_device(targets, device)))
    criterion, optimizer = components.criterion, components.optimizer
    answer = numerics.same_answer(untrained_net, batches, config, optimizer, device, criterion)
    recorder.add(asdict(answer))
    if components.devices.world_size > 1:
        training = RankTraining(untrained_net, criterion, batches, config, components.devices, optimizer)
        recorder.add(asdict(check_ranks(training, code, answer)))


def finish(components: Components, error: BaseException | None) -> Row:
    """Write the last row, close the logger, and raise an error of the user's configuration again."""
    trainer, recorder, watch = components.trainer, components.recorder, components.watch
    row = replace(recorder.final_row(components.task, failed=error is not None), status="ok")
    if error is not None:
        cause = watch.ranks.cause()
        row = replace(row, status=cause.status, error=cause.reason)
        if not trainer.is_global_zero:
            fail_row(recorder.run_dir, cause, row)
        # The other ranks failed because of this one, which prints its error. A run that was stopped has none to show.
        if cause == watch.ranks.own_cause and cause.status != "interrupted":
            print_error(error)
    if trainer.is_global_zero:
        end_row(recorder.run_dir, row)
    watch.end(is_ok=error is None)
    close_loggers(trainer.loggers, row)
    is_limited = components.config.trainer.memory_limit_gib is not None
    if is_limited and not isinstance(error, torch.AcceleratorError):  # after which CUDA answers nothing
        limit_memory(trainer.strategy.root_device, None)
    raise_config_error(error)
    if dist.is_initialized():
        # NCCL waits forever for CUDA graphs with its collectives (https://github.com/pytorch/pytorch/issues/115388).
        dynamo.reset()
        leave_process_group(is_ok=error is None)
    return row


def finish_unbuilt(watch: Watch, request: Row, error: BaseException | None) -> Row:
    """Write the row of a run that ended before it began. Raises ConfigError for a config that cannot run."""
    raise_config_error(error)
    cause = watch.ranks.cause()
    fail_row(watch.launch.run_dir, cause, request)
    watch.end(is_ok=False)
    if cause == watch.ranks.own_cause and cause.status != "interrupted":
        print_error(error)
    return replace(request, status=cause.status, error=cause.reason)
