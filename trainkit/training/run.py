"""One run: a typed config in, a typed row out. The row is there on success and on failure."""

import copy
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy

from trainkit.compiler import apply, facts
from trainkit.compiler.apply import Compiler
from trainkit.compiler.facts import CompileFacts, combined
from trainkit.config.schema import RunConfig
from trainkit.config.validation import check
from trainkit.data.module import DataModule
from trainkit.distributed.collectives import gather
from trainkit.metrics.environment import machine
from trainkit.metrics.memory import GIB, limit_memory
from trainkit.metrics.meters import Meters
from trainkit.metrics.steps import percentile, samples_per_s, slowest
from trainkit.metrics.timer import Breakdown
from trainkit.results.epoch import EpochRecord
from trainkit.results.files import append_epoch, end_row, fail_row, set_aside, write_row
from trainkit.results.requested import requested_fields
from trainkit.results.row import Row, finite
from trainkit.training import build, checkpoint, numerics
from trainkit.training.status import NonFiniteLossError, close_logger, correct, outcome, quiet, show
from trainkit.training.task import Task


class Recorder(Callback):
    """Writes the record of every epoch, and the row so far, as soon as they are known."""

    def __init__(self, config: RunConfig, meters: Meters, compiler: Compiler, on_epoch: Callable[[EpochRecord], None]):
        self.config, self.meters, self.compiler, self.on_epoch = config, meters, compiler, on_epoch
        self.run_dir = Path(config.job.run_dir)
        self.row = Row(status="interrupted", **requested_fields(config))
        self.num_skipped_steps: int | None = None  # in the epochs that ended; None: no GradScaler
        self.facts: CompileFacts | None = None  # of all ranks, as of the last epoch's end
        self.trained: Row | None = None  # the row at the end of the fit: what comes after it is another program
        self.further: dict[str, Any] = {}  # what was found after the fit

    def setup(self, trainer: Trainer, task: LightningModule, stage: str) -> None:
        """Write a row at once: a run that is killed leaves one, `interrupted`, with what was measured by then."""
        self.run_dir = Path(trainer.strategy.broadcast(str(self.run_dir)))
        device = trainer.strategy.root_device
        self.row = replace(
            self.row,
            world_size=trainer.world_size,
            strategy="ddp" if isinstance(trainer.strategy, DDPStrategy) else "single",
            accelerator="gpu" if device.type == "cuda" else device.type,
            **machine(device),
        )
        if trainer.is_global_zero:
            if self.config.ckpt_path is None:
                set_aside(self.run_dir)
            write_row(self.run_dir, self.row)
            if trainer.logger is not None:
                trainer.logger.log_hyperparams(asdict(self.config))
        limit_memory(device, self.config.trainer.memory_limit_gib)
        self.meters.start_up(lambda: self.compiler.start_up(device))

    def on_train_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        assert isinstance(task, Task)
        self.meters.epochs[-1] = slowest(gather(self.meters.epochs[-1]))
        task.finish_train_epoch()
        record = self._record(task)
        if record.num_skipped_steps is not None:
            self.num_skipped_steps = (self.num_skipped_steps or 0) + record.num_skipped_steps
        self.facts = combined(gather(self.compiler.facts()))
        if trainer.is_global_zero:
            append_epoch(self.run_dir, record)
            write_row(self.run_dir, self.measured(task))
            self.on_epoch(record)
            if trainer.logger is not None:
                trainer.logger.log_metrics(logged(record), step=trainer.global_step)
        if task.train_loss is not None and not abs(task.train_loss) < float("inf"):
            raise NonFiniteLossError(f"the training loss of epoch {record.epoch} is {task.train_loss}")

    def _record(self, task: Task) -> EpochRecord:
        cost, steady = self.meters.epochs[-1], self.meters.steady_steps()[-1]
        return EpochRecord(
            epoch=task.current_epoch,
            train_time_s=cost.train_time_s,
            val_time_s=cost.val_time_s,
            compile_time_s=cost.compile_time_s,
            num_steps=len(cost.steps),
            num_samples=sum(step.num_samples for step in cost.steps),
            step_time_ms_p50=percentile([step.time_ms for step in steady], 50),
            samples_per_s=samples_per_s(steady),
            peak_allocated_bytes=cost.peak.allocated,
            peak_reserved_bytes=cost.peak.reserved,
            peak_device_bytes=cost.peak.device,
            train_loss=finite(task.train_loss),
            val_loss=finite(task.val_loss),
            val_accuracy=task.val_accuracy,
            num_steady_steps=len(steady),
            num_skipped_steps=task.num_skipped_steps,
        )

    def measured(self, task: Task) -> Row:
        """The row with everything that is known now."""
        if self.trained is not None:
            return replace(self.trained, **self.further)
        return replace(
            self.row,
            **vars(self.facts or self.compiler.facts()),
            **self.meters.summary(facts.autotune_s(), facts.tells_lookups(), self.compiler.skips_function()),
            num_epochs=sum(epoch.complete for epoch in self.meters.epochs),
            train_loss=finite(task.train_loss),
            val_loss=finite(task.val_loss),
            val_accuracy=task.val_accuracy,
            num_val_targets=task.num_val_targets,
            num_skipped_steps=self.num_skipped_steps,
        )


def logged(record: EpochRecord) -> dict[str, float]:
    """The epoch's record under the names that loggers get."""
    named = {
        "epoch/train_time_s": record.train_time_s,
        "epoch/val_time_s": record.val_time_s,
        "epoch/peak_allocated_gib": record.peak_allocated_bytes / GIB,
        "epoch/peak_reserved_gib": record.peak_reserved_bytes / GIB,
        "epoch/peak_device_gib": record.peak_device_bytes / GIB,
        "epoch/compile_time_s": record.compile_time_s,
        "epoch/samples_per_s": record.samples_per_s,
        "epoch/num_skipped_steps": record.num_skipped_steps,
        "train/loss": record.train_loss,
        "val/loss": record.val_loss,
        "val/accuracy": record.val_accuracy,
        "epoch": record.epoch,
    }
    return {name: value for name, value in named.items() if value is not None}


def run(config: RunConfig, on_epoch: Callable[[EpochRecord], None] = lambda record: None) -> Row:
    """Train and validate as asked, and return the row that now lies in the run directory.

    `on_epoch` is called with every epoch's record on rank 0. A run that fails returns a row with its status and
    reason. Raises ConfigError, before any device is touched, for what cannot be run as asked.
    """
    check(config)
    quiet(offline=bool(config.logger.get("offline")))
    seed_everything(config.seed, verbose=False)
    devices = build.devices(config)
    data = build.data(config)
    net = build.net(config, data, devices)
    untrained = copy.deepcopy(net) if config.check else None
    optimizer = build.optimizer(config)
    ckpt_path = checkpoint.resume_path(config, net, optimizer)
    attention = build.attention(config, devices)
    meters = Meters()
    with (
        attention,
        apply.cache(config.compile.cache.value, config.trainer.attention.value),
        Compiler(config.compile, meters.on_compile_start, meters.on_compile_end, meters.on_eager) as compiler,
    ):
        recorder = Recorder(config, meters, compiler, on_epoch)
        task = Task(net, compiler, optimizer, config, data.prepare)
        trainer = build.trainer(config, devices, [meters, recorder], meters.batch_clock)
        torch.set_float32_matmul_precision(config.amp.matmul_precision.value)
        error: BaseException | None = None
        try:
            trainer.fit(task, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
            recorder.trained = recorder.measured(task)
            if config.meters.breakdown:
                recorder.further |= split_step(task, data, config, devices)
            if untrained is not None:
                compiler.restore()
                facts.begin()
                device = trainer.strategy.root_device
                prepare = copy.deepcopy(data.prepare).to(device).eval()  # modes draw other random numbers
                first = islice(data.train_dataloader(), numerics.STEPS)
                batches = [(prepare(inputs.to(device)), targets) for inputs, targets in first]
                recorder.further |= asdict(numerics.same_answer(untrained, batches, config, optimizer, device))
        except (Exception, KeyboardInterrupt, SystemExit) as caught:  # a failure is a row
            error = caught
        return finish(trainer, task, recorder, error)


def split_step(task: Task, data: DataModule, config: RunConfig, devices: build.Devices) -> dict[str, Any]:
    """Train one more epoch, and return its forward, backward and optimizer times: the slowest rank's of each."""
    breakdown = Breakdown(config.trainer.accumulate_grad_batches)
    build.profiling_trainer(config, devices, breakdown).fit(task, datamodule=data)
    ranks = gather(breakdown.summary_ms())
    return {name: max((rank[name] for rank in ranks if rank[name] is not None), default=None) for name in ranks[0]}


def finish(trainer: Trainer, task: Task, recorder: Recorder, error: BaseException | None) -> Row:
    """Write the last row, close the logger, and raise again what the user must correct."""
    status, reason = outcome(error)
    if error is not None:
        recorder.facts = None  # this rank's own of now; the ranks' of the last epoch do not hold what failed after it
    row = replace(recorder.measured(task), status=status, error=reason)
    first = True
    if trainer.is_global_zero:
        row = end_row(recorder.run_dir, row)
        close_logger(trainer.logger, row)
        first = row.error == reason
    elif reason is not None:
        first = fail_row(recorder.run_dir, status, f"rank {trainer.global_rank}: {reason}")
    if first:  # of several ranks the one that failed first says where; the others failed for want of it
        show(error)
    correct(error)
    if error is None and dist.is_initialized():
        dist.destroy_process_group()
    return row
