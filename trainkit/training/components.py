"""The objects of a run: built from its config, before a device is used."""

import copy
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from lightning import Trainer, seed_everything
from torch import nn

from trainkit.compiler import inductor
from trainkit.compiler.caches import compile_cache, require_writable_cache
from trainkit.compiler.compiler import Compiler
from trainkit.compiler.startup import shared_cores, start_workers_for
from trainkit.config.schema import AUTOTUNE_MODES, RunConfig
from trainkit.data.module import DataModule
from trainkit.distributed.topology import Devices, select_devices, shares_autotuning
from trainkit.distributed.watch import Watch
from trainkit.metrics.foreign import ForeignProcesses
from trainkit.metrics.memory import used_frac
from trainkit.metrics.meters import Meters
from trainkit.results.epoch import EpochRecord
from trainkit.results.progress import Progress
from trainkit.training import checkpoint
from trainkit.training.criterion import Criterion, build_criterion
from trainkit.training.model import build_data, build_model
from trainkit.training.optimizer import OptimizerFactory, build_optimizer
from trainkit.training.precision import attention_kernel
from trainkit.training.progress import ProgressWriter
from trainkit.training.recorder import Recorder
from trainkit.training.task import Task
from trainkit.training.trainer import build_trainer


@dataclass(frozen=True)
class Listeners:
    """Whoever follows a run while it trains."""

    on_epoch: Callable[[EpochRecord], None] = lambda record: None
    progress: Progress = field(default_factory=Progress)


@dataclass
class Components:
    """The objects of a run."""

    config: RunConfig
    watch: Watch
    devices: Devices
    data: DataModule
    untrained_net: nn.Module | None  # a copy for the numerics check
    criterion: Criterion  # untrained, as Task's is before training
    optimizer: OptimizerFactory
    ckpt_path: str | None
    compiler: Compiler
    task: Task
    recorder: Recorder
    trainer: Trainer
    foreign_processes: ForeignProcesses


def build(config: RunConfig, listeners: Listeners, watch: Watch, contexts: ExitStack) -> Components:
    """Build all objects of a run, without using a device.

    What the run needs around it, such as its compile cache, is entered in `contexts`. Raises ConfigError, before any
    device is touched.
    """
    seed_everything(config.seed, verbose=False)
    devices = select_devices(config)
    prepare_compiles(config, devices, contexts)
    data = build_data(config)
    criterion = build_criterion(config)
    net = build_model(config, data, devices, criterion)
    untrained_net = copy.deepcopy(net) if config.check else None
    optimizer = build_optimizer(config)
    ckpt_path = checkpoint.resume_path(config, net, criterion, optimizer, devices.world_size)
    choose_kernels(config, devices, contexts)
    meters = Meters()
    progress = ProgressWriter(listeners.progress, config.trainer.max_steps, config.compile.mode != "eager")
    compiler = contexts.enter_context(build_compiler(config, watch, progress, meters))
    recorder = Recorder(config, watch, meters, compiler, listeners.on_epoch)
    trainer = build_trainer(config, devices, watch, meters, recorder, progress)
    foreign_processes = ForeignProcesses(trainer.strategy.root_device)
    start_workers_for(config.compile, devices.type, is_counted=True)
    modes = {config.compile.mode, *(part.mode for part in config.compile.parts)}
    if not modes.isdisjoint(AUTOTUNE_MODES):  # This starts CUDA, so the other processes are counted first.
        contexts.enter_context(inductor.on_autotuning(listeners.progress.tune))
    return Components(
        config=config,
        watch=watch,
        devices=devices,
        data=data,
        untrained_net=untrained_net,
        criterion=criterion,
        optimizer=optimizer,
        ckpt_path=ckpt_path,
        compiler=compiler,
        task=Task(net, compiler, optimizer, config, data.prepare, copy.deepcopy(criterion)),
        recorder=recorder,
        trainer=trainer,
        foreign_processes=foreign_processes,
    )


def prepare_compiles(config: RunConfig, devices: Devices, contexts: ExitStack) -> None:
    """See that compiled code can be written, divide the cores among the ranks, and have inductor's workers start."""
    if config.compile.mode == "eager":
        return
    require_writable_cache()
    contexts.enter_context(shared_cores(devices.per_node))
    start_workers_for(config.compile, devices.type, is_counted=False)


def choose_kernels(config: RunConfig, devices: Devices, contexts: ExitStack) -> None:
    """Enter what decides which kernels run: the one of attention, cached code, the autotuning of all ranks."""
    contexts.enter_context(attention_kernel(config, devices))
    contexts.enter_context(compile_cache(config.compile.cache, config.trainer.attention))
    if shares_autotuning(config, devices):
        contexts.enter_context(inductor.shared_autotuning())
    if config.compile.artifacts is not None:
        contexts.enter_context(inductor.own_artifacts())


def build_compiler(config: RunConfig, watch: Watch, progress: ProgressWriter, meters: Meters) -> Compiler:
    """The run's compiler, which tells the watch, the progress and the meter of epochs when it compiles."""
    events = meters.epoch_meter

    def on_compile_start(kind: str) -> None:
        watch.ranks.is_compiling = True
        progress.begin_compile(kind)
        events.on_compile_start(kind)

    def on_compile_end(kind: str) -> None:
        watch.ranks.is_compiling = False
        progress.end_compile()
        events.on_compile_end(kind)

    return Compiler(config.compile, on_compile_start, on_compile_end, events.on_eager, used_frac)
