"""The training loop does what Lightning's own does, and measures the step alone."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop

from tests.networks import network
from trainkit.data.digits import Digits
from trainkit.distributed.launch import Launch
from trainkit.distributed.watch import Watch
from trainkit.metrics.meters import Meters
from trainkit.results.row import Row
from trainkit.training import step
from trainkit.training.components import Listeners, build
from trainkit.training.loop import BATCH_HOOKS, StepLoop
from trainkit.training.recorder import Recorder

SMALL = (network("Plain"), "compile.mode=eager", "trainer.max_epochs=2", "trainer.limit_train_batches=7")

ROW = Row("run/run", "interrupted")


def hook_names():
    return [name for name in vars(Callback) if name.startswith("on_")]


class Spy(Callback):
    """Notes each hook that is called, with the number of steps so far, and with the loss where it is given."""

    def __init__(self):
        self.calls = []

    def _note(self, hook, trainer, arguments):
        outputs = arguments[0] if arguments and isinstance(arguments[0], dict) else {}
        loss = float(outputs["loss"]) if "loss" in outputs else None
        self.calls.append((hook, trainer.global_step, loss))


def _listen(hook):
    def listen(self, trainer, task, *arguments):
        self._note(hook, trainer, arguments)

    setattr(Spy, hook, listen)


for _hook in hook_names():
    _listen(_hook)


def fit(config, loop_class, *callbacks):
    """The Trainer after a fit with a loop, with these callbacks in place of the Recorder."""
    with ExitStack() as contexts:
        watch = Watch(Launch(Path(config.job.run_dir)), ROW)
        parts = build(config, Listeners(), watch, contexts)
        trainer = parts.trainer
        trainer.callbacks = [callback for callback in trainer.callbacks if not isinstance(callback, Recorder)]
        trainer.callbacks.extend(callbacks)
        if loop_class is _TrainingEpochLoop:
            trainer.fit_loop.epoch_loop = _TrainingEpochLoop(trainer)
        assert type(trainer.fit_loop.epoch_loop) is loop_class
        trainer.fit(parts.task, datamodule=parts.data)
    return trainer


@pytest.mark.parametrize(
    "requested",
    [
        (),
        ("trainer.accumulate_grad_batches=3", "trainer.gradient_clip_val=0.1"),
        ("optimizer=sgd", "trainer.schedule=cosine", "trainer.warmup_steps=2", "amp=bf16"),
        ("optimizer.foreach=true", "trainer.gradient_clip_val=0.1", "trainer.limit_val_batches=0"),
        ("ddp.strategy=ddp",),
        ("trainer.val_check_interval=3", "trainer.accumulate_grad_batches=2"),
        ("amp=bf16_true", "data=synthetic"),
        ("trainer.val_check_interval=0.5", "+trainer.kwargs.check_val_every_n_epoch=2"),
    ],
    ids=" ".join,
)
def test_hooks_losses_parameters_and_progress_are_those_of_lightnings_loop(requested, compose, tmp_path):
    spies, trainers = [], []
    for number, loop_class in enumerate((_TrainingEpochLoop, StepLoop)):
        spy = Spy()
        config = compose(*SMALL, *requested, run_dir=tmp_path / str(number))
        trainers.append(fit(config, loop_class, spy))
        spies.append(spy)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    assert spies[1].calls == spies[0].calls
    hooks = {hook for hook, _, _ in spies[0].calls}
    assert hooks > {"on_train_batch_start", "on_before_zero_grad", "on_before_optimizer_step", "on_train_batch_end"}
    expected, answer = (trainer.lightning_module.state_dict() for trainer in trainers)
    for name, value in expected.items():
        assert torch.equal(answer[name], value), name
    states = [trainer.fit_loop.state_dict() for trainer in trainers]
    assert states[0] == states[1]
    rates = [trainer.optimizers[0].param_groups[0]["lr"] for trainer in trainers]
    assert rates[0] == rates[1]


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_before_optimizer_step"])
def test_a_callback_may_log(hook, compose, tmp_path):
    def log(self, trainer, task, *arguments):
        task.log("user/step", float(trainer.global_step), on_epoch=True, on_step=True)

    logged = []
    for number, loop_class in enumerate((_TrainingEpochLoop, StepLoop)):
        logs = type("Logs", (Callback,), {hook: log})()
        trainer = fit(compose(*SMALL, run_dir=tmp_path / str(number)), loop_class, logs)
        logged.append({name: float(value) for name, value in trainer.callback_metrics.items()})
    for metrics in logged:
        del metrics["train/loss"]  # which StepLoop alone counts
    assert logged[0] == logged[1]
    assert {"user/step_step", "user/step_epoch"} < set(logged[1])


def test_a_checkpoint_of_a_callback_inside_an_epoch_is_written(compose, tmp_path):
    fit(compose(*SMALL), StepLoop, ModelCheckpoint(tmp_path / "mine", every_n_train_steps=5, save_top_k=-1))
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"epoch=0-step=5.ckpt", "epoch=1-step=10.ckpt"}


class EpochSchedule(Callback):
    """Steps the schedule with each epoch, as SWA does."""

    def on_train_epoch_start(self, trainer, task):
        trainer.lr_scheduler_configs[0].interval = "epoch"


def test_a_schedule_that_a_callback_changed_steps_as_in_lightnings_loop(compose, tmp_path):
    rates = []
    for number, loop_class in enumerate((_TrainingEpochLoop, StepLoop)):
        config = compose(*SMALL, "trainer.warmup_steps=20", run_dir=tmp_path / str(number))
        trainer = fit(config, loop_class, EpochSchedule())
        rates.append(trainer.optimizers[0].param_groups[0]["lr"])
    assert rates[0] == rates[1]


def test_a_data_module_may_bring_its_batches_to_the_device(compose, monkeypatch, tmp_path):
    numbers = []

    def doubled(self, batch, dataloader_idx):
        numbers.append(dataloader_idx)
        return [batch[0] * 2, batch[1]]

    plain = fit(compose(*SMALL, run_dir=tmp_path / "plain"), StepLoop).lightning_module.state_dict()
    monkeypatch.setattr(Digits, "on_after_batch_transfer", doubled)
    other = fit(compose(*SMALL), StepLoop).lightning_module.state_dict()
    assert numbers.count(0) >= 14
    assert not torch.equal(other["objective.net.fc.weight"], plain["objective.net.fc.weight"])


def sleepy(hook):
    """A callback that sleeps for 250 ms in a hook."""

    def sleep(self, trainer, task, *arguments):
        time.sleep(0.25)

    return type("Sleepy", (Callback,), {hook: sleep})()


@pytest.mark.parametrize("hook", [*BATCH_HOOKS, *step.HOOKS])
def test_the_time_of_a_callback_is_overhead_and_not_the_steps(hook, compose):
    short = ("trainer.max_epochs=1", "trainer.limit_train_batches=4")
    trainer = fit(compose(*SMALL, *short), StepLoop, sleepy(hook))
    meters = next(callback for callback in trainer.callbacks if isinstance(callback, Meters))
    last = meters.epochs[-1]
    assert last.overhead_ms >= 250  # a loaded machine sleeps longer, never shorter
    # The shortest: where processes share too few CPUs, the system stops them for 50 ms at times.
    assert min(batch_step.time_ms for batch_step in last.steps) < 250
