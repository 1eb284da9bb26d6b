"""The Lightning callback that writes a run's row and the records of its epochs while it trains."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from trainkit.compiler import dynamo, facts, inductor
from trainkit.compiler.compiler import Compiler
from trainkit.compiler.facts import combined
from trainkit.compiler.generated_code import CompiledCode, compiled_code
from trainkit.config.schema import RunConfig
from trainkit.distributed.collectives import gather
from trainkit.distributed.restarts import FirstAttempt, first_attempt, num_restarts, publish_first_attempt
from trainkit.distributed.strategies import strategy_name
from trainkit.distributed.watch import Watch
from trainkit.metrics.environment import machine_columns
from trainkit.metrics.epochs import reduce_ranks
from trainkit.metrics.memory import limit_memory
from trainkit.metrics.meters import Meters
from trainkit.metrics.steps import samples_per_s
from trainkit.metrics.summary import CompilerReport
from trainkit.results.effective import CompileArtifacts, CompileFacts
from trainkit.results.epoch import EpochRecord, logged_values
from trainkit.results.files import ROW_FILE, append_epoch, keep_epochs, set_aside, write_row
from trainkit.results.requested import requested_fields
from trainkit.results.row import Row, finite
from trainkit.results.tuned import warn_of_other_machine
from trainkit.stats import percentile
from trainkit.training.artifacts import load_artifacts
from trainkit.training.checkpoint_file import remove_unfinished
from trainkit.training.metric import Accuracy, Metric
from trainkit.training.status import NonFiniteLossError
from trainkit.training.task import Task


class Recorder(Callback):
    """Writes `row.json` before training starts, and updates it and `epochs.jsonl` every epoch.

    So a failed or killed run keeps its measurements. `on_epoch` is called with each record on rank 0.
    """

    def __init__(
        self,
        config: RunConfig,
        watch: Watch,
        meters: Meters,
        compiler: Compiler,
        on_epoch: Callable[[EpochRecord], None],
    ):
        self.run_dir = Path(config.job.run_dir)
        self._config, self._watch = config, watch
        self._meters, self._compiler, self._on_epoch = meters, compiler, on_epoch
        self._row = Row(status="interrupted", **requested_fields(config))
        self._num_skipped_steps: int | None = None  # in all complete epochs; None without a GradScaler
        self._code: CompiledCode | None = None
        self._validation = ExitStack()  # settings of torch during a validation
        self.artifacts = CompileArtifacts()  # that were there at the start
        self._facts: CompileFacts | None = None  # of all ranks at the end of the last epoch
        self._row_after_fit: Row | None = None

    def setup(self, trainer: Trainer, task: LightningModule, stage: str) -> None:
        """Write the first row, `interrupted`, and compile something small, apart from the network's own compiles."""
        device = trainer.strategy.root_device
        accelerator = "gpu" if device.type == "cuda" else device.type
        self._row = replace(
            self._row,
            world_size=trainer.world_size,
            strategy=strategy_name(trainer.strategy),
            accelerator=accelerator,
            num_restarts=num_restarts(self.run_dir),
            **machine_columns(device),
        )
        if trainer.is_global_zero:
            warn_of_other_machine(self._config.tuned, self._row)
            remove_unfinished(Path(self.run_dir, "checkpoints"))
            if first_attempt(self.run_dir) is not None:
                set_aside(self.run_dir, [ROW_FILE])  # of the attempt before
            elif self._config.ckpt_path is None:
                set_aside(self.run_dir)
            path = write_row(self.run_dir, self._row)
            publish_first_attempt(FirstAttempt(str(self.run_dir.absolute()), path.stat().st_mtime_ns))
            for logger in trainer.loggers:
                logger.log_hyperparams(asdict(self._config))
        self.artifacts = load_artifacts(self._config, device)
        self._row = replace(self._row, **vars(self.artifacts))
        limit_memory(device, self._config.trainer.memory_limit_gib)
        self._watch.ranks.is_compiling = True
        self._meters.epoch_meter.compile_clock.start_up(lambda: self._compiler.start_up(device))
        self._watch.ranks.is_compiling = False

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        if trainer.is_global_zero:
            keep_epochs(self.run_dir, before=trainer.current_epoch)

    def on_validation_start(self, trainer: Trainer, task: LightningModule) -> None:
        """Keep the code of training, and let each rank autotune by itself: the ranks' last batches of a validation
        differ in size, and so may their graphs."""
        if self._config.check:
            self.code_of_training()
        if self._config.compile.share_autotuning:
            self._validation.enter_context(inductor.own_autotuning())

    def on_validation_end(self, trainer: Trainer, task: LightningModule) -> None:
        self._validation.close()

    def code_of_training(self) -> CompiledCode:
        """This rank's code at the start of the first validation, or now."""
        if self._code is None:
            self._code = compiled_code()
        return self._code

    def on_train_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        """Write the record of the epoch and the row. Raises NonFiniteLossError for a training loss that is not."""
        assert isinstance(task, Task)
        self._meters.epochs[-1] = reduce_ranks(gather(self._meters.epochs[-1]))
        task.finish_train_epoch()
        record = self._make_record(task)
        if record.num_skipped_steps is not None:
            self._num_skipped_steps = (self._num_skipped_steps or 0) + record.num_skipped_steps
        self._facts = combined(gather(self._compiler.facts()))
        if trainer.is_global_zero:
            append_epoch(self.run_dir, record)
            write_row(self.run_dir, self.current_row(task))
            self._on_epoch(record)
            for logger in trainer.loggers:
                logger.log_metrics(logged_values(record), step=trainer.global_step)
        if task.train_loss is not None and finite(task.train_loss) is None:
            raise NonFiniteLossError(f"the training loss of epoch {record.epoch} is {task.train_loss}")

    def _make_record(self, task: Task) -> EpochRecord:
        cost, steady_steps = self._meters.epochs[-1], self._meters.steady_steps()[-1]
        times_ms = [step.time_ms for step in steady_steps]
        val_loss = val_metric = None
        if cost.val_time_s is not None:  # else the task has the figures of an earlier epoch's validation
            val_loss, val_metric = task.val_loss, task.val_metric
        return EpochRecord(
            epoch=task.current_epoch,
            num_restarts=num_restarts(self.run_dir),
            train_time_s=cost.train_time_s,
            val_time_s=cost.val_time_s,
            compile_time_s=cost.compile_time_s,
            num_steps=len(cost.steps),
            num_samples=sum(step.num_samples for step in cost.steps),
            step_time_ms_p50=percentile(times_ms, 50),
            samples_per_s=samples_per_s(steady_steps),
            peak_allocated_bytes=cost.peak.allocated,
            peak_reserved_bytes=cost.peak.reserved,
            peak_device_bytes=cost.peak.device,
            train_loss=finite(task.train_loss),
            val_loss=finite(val_loss),
            **metric_columns(task.metric, val_metric),
            num_steady_steps=len(steady_steps),
            num_skipped_steps=task.num_skipped_steps,
        )

    def current_row(self, task: Task) -> Row:
        """The row with all measurements so far. After `end_fit` it changes by `add` alone."""
        if self._row_after_fit is not None:
            return self._row_after_fit
        report = CompilerReport(facts.autotune_s(), dynamo.reports_lookups(), self._compiler.skips_function())
        return replace(
            self._row,
            **vars(self._facts or self._compiler.facts()),
            **self._meters.summary(report),
            num_epochs=sum(epoch.finished for epoch in self._meters.epochs),
            train_loss=finite(task.train_loss),
            val_loss=finite(task.val_loss),
            **metric_columns(task.metric, task.val_metric),
            num_val_targets=task.num_val_targets,
            num_skipped_steps=self._num_skipped_steps,
        )

    def end_fit(self, task: Task) -> None:
        """Keep the row as it is now: the programs that run after the fit are not the one that was measured."""
        self._row_after_fit = self.current_row(task)

    def add(self, columns: dict[str, Any]) -> None:
        """Add columns that were measured after the fit."""
        assert self._row_after_fit is not None, "the fit has not ended"
        self._row_after_fit = replace(self._row_after_fit, **columns)

    def final_row(self, task: Task, failed: bool) -> Row:
        """The last row of the run. After a failure the compiler's facts are this rank's current ones: the facts of all
        ranks are those of the last complete epoch, before the failure."""
        if failed:
            self._facts = None
        return self.current_row(task)


def metric_columns(metric: Metric | None, value: float | None) -> dict[str, Any]:
    """The columns of a metric and its value, of a row or an epoch record; none without a metric."""
    if metric is None:
        return {}
    value = finite(value)
    columns = {
        "metric_name": metric.name,
        "metric_higher_is_better": metric.higher_is_better,
        "val_metric": value,
    }
    if isinstance(metric, Accuracy):
        columns["val_accuracy"] = value
    return columns
