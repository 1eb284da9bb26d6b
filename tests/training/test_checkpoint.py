"""Resuming: the parameters of an uninterrupted run, and checkpoints that do not fit."""

import os
import shutil
import signal

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from tests import forked
from tests.conftest import CONF, parameters, same
from tests.networks import network
from trainkit.config.errors import ConfigError
from trainkit.results.files import read_epochs, read_row
from trainkit.training.run import run

MODEL_CHECKPOINT = "lightning.pytorch.callbacks.ModelCheckpoint"
QUICK = ("trainer.max_epochs=2", "trainer.limit_train_batches=6")


def test_a_resumed_run_has_the_parameters_of_the_uninterrupted_one_bit_for_bit(compose, tmp_path):
    asked = ("compile.backend=aot_eager", network("Blocks"), "trainer.warmup_steps=30", "trainer.limit_train_batches=9")
    run(compose(*asked, "trainer.max_epochs=4", run_dir=tmp_path / "whole"))
    run(compose(*asked, "trainer.max_epochs=2", run_dir=tmp_path / "parts"))
    half = parameters(tmp_path / "parts")
    row = run(compose(*asked, "trainer.max_epochs=4", "ckpt_path=last", run_dir=tmp_path / "parts"))
    assert row.num_epochs == 2
    assert not same(half, parameters(tmp_path / "whole"))
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "whole"))
    assert (tmp_path / "parts" / "checkpoints" / "best.ckpt").exists()


@pytest.mark.parametrize("name", ["digits", "2026-11-26/a-run", "sweeps/both/000-eager"])
def test_last_is_of_the_newest_run_of_the_model_and_data_wherever_it_is_among_the_runs(name, compose, tmp_path):
    asked = ("compile.mode=eager", *QUICK, f"job.runs_dir='{tmp_path}/runs'")
    run_dir = tmp_path / "runs" / name
    run_dir.parent.mkdir(parents=True)
    run(compose(*asked, run_dir=run_dir))
    row = run(compose(*asked, "trainer.max_epochs=3", "ckpt_path=last", run_dir=tmp_path / "new"))
    assert (row.num_epochs, row.error) == (1, None)


@pytest.mark.parametrize("num_workers", [1, 4])
def test_a_resumed_run_with_workers_has_the_order_of_the_uninterrupted_one(num_workers, compose, tmp_path):
    asked = ("compile.mode=eager", f"data.num_workers={num_workers}", "trainer.limit_train_batches=6")
    whole = run(compose(*asked, "trainer.max_epochs=3", run_dir=tmp_path / "whole"))
    run(compose(*asked, "trainer.max_epochs=1", run_dir=tmp_path / "parts"))
    row = run(compose(*asked, "trainer.max_epochs=3", "ckpt_path=last", run_dir=tmp_path / "parts"))
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "whole"))
    assert (row.train_loss, row.val_loss) == (whole.train_loss, whole.val_loss)


NINE_STEPS = (network("Dropout"), "trainer.limit_train_batches=9", "trainer.warmup_steps=20", "trainer.max_epochs=3")


@pytest.mark.parametrize(
    "requested",
    [
        ("compile.mode=eager", "data.num_workers=0"),
        ("compile.mode=eager", "data.num_workers=1", "trainer.accumulate_grad_batches=2"),
        ("compile.backend=aot_eager", "data=synthetic", "data.image_size=8", "data.batch_sizes=[8,16,32]"),
    ],
    ids=" ".join,
)
def test_a_run_that_ended_inside_of_an_epoch_resumes_with_the_next_batch(requested, compose, tmp_path):
    asked = (*NINE_STEPS, *requested)
    epochs, resumed_epochs = [], []
    whole = run(compose(*asked, run_dir=tmp_path / "whole"), on_epoch=epochs.append)
    stop = 8 if "trainer.accumulate_grad_batches=2" in requested else 13  # in the second epoch
    run(compose(*asked, f"trainer.max_steps={stop}", run_dir=tmp_path / "parts"))
    row = run(compose(*asked, "ckpt_path=last", run_dir=tmp_path / "parts"), on_epoch=resumed_epochs.append)
    assert row.status == "ok"
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "whole"))
    assert (row.train_loss, row.val_loss, row.num_epochs) == (whole.train_loss, whole.val_loss, 2)
    losses = [(record.epoch, record.train_loss, record.val_loss) for record in epochs[1:]]
    assert [(record.epoch, record.train_loss, record.val_loss) for record in resumed_epochs] == losses
    assert [record.epoch for record in read_epochs(tmp_path / "parts")] == [0, 1, 2]
    assert resumed_epochs[0].num_steps == epochs[1].num_steps - (stop - epochs[0].num_steps)


@pytest.mark.parametrize("requested", [(), ("trainer.val_check_interval=3", "trainer.accumulate_grad_batches=3")])
def test_a_checkpoint_of_a_callback_inside_of_an_epoch_resumes_with_the_next_batch(requested, compose, tmp_path):
    mine = f"{{_target_: {MODEL_CHECKPOINT}, dirpath: '{tmp_path}/mine', every_n_train_steps: 4, save_top_k: -1}}"
    asked = ("compile.mode=eager", "data.num_workers=1", *NINE_STEPS, f"+callbacks.mine={mine}", *requested)
    whole = run(compose(*asked, run_dir=tmp_path / "whole"))
    path = tmp_path / "mine" / ("epoch=1-step=4.ckpt" if requested else "epoch=1-step=12.ckpt")
    row = run(compose(*asked, f"ckpt_path='{path}'"))
    assert row.status == "ok"
    assert same(parameters(tmp_path / "run"), parameters(tmp_path / "whole"))
    assert (row.train_loss, row.val_loss) == (whole.train_loss, whole.val_loss)


@pytest.mark.parametrize("written_after", ["steps", "validations"])
def test_a_run_that_failed_resumes_from_the_checkpoint_inside_of_its_epoch(written_after, compose, tmp_path):
    asked = ["compile.mode=eager", *NINE_STEPS, "trainer.val_check_interval=3"]
    whole = run(compose(*asked, run_dir=tmp_path / "whole"))
    name = "best"
    if written_after == "steps":
        asked, name = [*asked, "checkpoint.every_n_train_steps=4"], "last"
    failing = f"+callbacks.fails._target_={__name__}.Fails"
    assert run(compose(*asked, failing, run_dir=tmp_path / "parts")).status == "failed"
    path = tmp_path / "parts" / "checkpoints" / f"{name}.ckpt"
    assert torch.load(path, weights_only=True)["global_step"] in (15, 16)
    row = run(compose(*asked, f"ckpt_path='{path}'", run_dir=tmp_path / "parts"))
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "whole"))
    assert (row.train_loss, row.val_loss) == (whole.train_loss, whole.val_loss)


class Fails(Callback):
    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (1, 7):
            raise ArithmeticError("as asked")


class Terminates(Callback):
    """Sends SIGTERM to its process as the fourth batch of the second epoch begins."""

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (1, 3):
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("num_batches", [1, 2])
def test_a_run_that_was_told_to_stop_resumes_with_the_next_step(num_batches, compose, tmp_path):
    asked = ("compile.mode=eager", *NINE_STEPS, f"trainer.accumulate_grad_batches={num_batches}")
    whole = run(compose(*asked, run_dir=tmp_path / "whole"))
    terminates = f"+callbacks.terminates._target_={__name__}.Terminates"
    stopped = run(compose(*asked, terminates, run_dir=tmp_path / "parts"))
    assert (stopped.status, stopped.num_epochs) == ("interrupted", 1)
    epochs = []
    row = run(compose(*asked, "ckpt_path=last", run_dir=tmp_path / "parts"), on_epoch=epochs.append)
    assert [record.num_steps for record in epochs] == [5 if num_batches == 1 else 3, 9 if num_batches == 1 else 5]
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "whole"))
    assert (row.train_loss, row.val_loss) == (whole.train_loss, whole.val_loss)


class TerminatesInValidation(Callback):
    """Sends SIGTERM to its process as a validation begins behind the sixth or the last batch of the second epoch."""

    def on_validation_batch_start(self, trainer, task, batch, batch_idx, dataloader_idx=0):
        if trainer.current_epoch == 1 and trainer.global_step >= 15 and batch_idx == 0:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(("requested", "num_steps"), [((), 18), (("trainer.val_check_interval=3",), 15)])
def test_a_run_that_was_told_to_stop_in_a_validation_has_saved_what_it_trained(requested, num_steps, compose, tmp_path):
    asked = ("compile.mode=eager", *NINE_STEPS, *requested)
    whole = run(compose(*asked, run_dir=tmp_path / "whole"))
    terminates = f"+callbacks.terminates._target_={__name__}.TerminatesInValidation"
    stopped = run(compose(*asked, terminates, run_dir=tmp_path / "parts"))
    assert (stopped.status, stopped.error) == ("interrupted", "stopped by SIGTERM")
    written = torch.load(tmp_path / "parts" / "checkpoints" / "last.ckpt", weights_only=True)
    assert written["global_step"] == num_steps
    row = run(compose(*asked, "ckpt_path=last", run_dir=tmp_path / "parts"))
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "whole"))
    assert (row.train_loss, row.val_loss) == (whole.train_loss, whole.val_loss)
    assert [record.epoch for record in read_epochs(tmp_path / "parts")] == [0, 1, 2]


def test_a_run_that_is_lost_after_the_last_step_of_an_epoch_resumes_with_its_record(compose, tmp_path):
    asked = ("compile.mode=eager", *NINE_STEPS, "checkpoint.every_n_train_steps=3")
    run(compose(*asked, run_dir=tmp_path / "whole"))
    run(compose(*asked, f"+callbacks.fails._target_={__name__}.FailsInValidation", run_dir=tmp_path / "parts"))
    row = run(compose(*asked, "ckpt_path=last", run_dir=tmp_path / "parts"))
    assert row.status == "ok"
    records = [
        [(record.epoch, record.val_loss) for record in read_epochs(tmp_path / name)] for name in ("whole", "parts")
    ]
    assert records[0] == records[1]
    assert same(parameters(tmp_path / "parts"), parameters(tmp_path / "whole"))


class FailsInValidation(Callback):
    def on_validation_start(self, trainer, task):
        if trainer.current_epoch == 1:
            raise ArithmeticError("as asked")


def test_a_checkpoint_inside_of_an_epoch_that_cannot_go_on_is_one_line(compose, tmp_path):
    asked = (*NINE_STEPS, "compile.mode=eager")
    run(compose(*asked, "trainer.max_steps=12", run_dir=tmp_path / "first"))
    path = tmp_path / "first" / "checkpoints" / "last.ckpt"
    problem = "with the state of 1 processes for 2; give one that was written at an epoch's end"
    with pytest.raises(ConfigError, match=f"was written inside of an epoch, {problem}"):
        run(compose(*asked, f"ckpt_path='{path}'", "trainer.devices=2"))
    with pytest.raises(ConfigError, match="was written inside of a step, without its gradients so far; give one"):
        run(compose(*asked, f"ckpt_path='{path}'", "trainer.accumulate_grad_batches=2"))


def test_two_ranks_resume_inside_of_an_epoch_and_between_two(train, tmp_path):
    """To what the uninterrupted run has, and however many workers load the batches."""
    asked = (*NINE_STEPS, "compile.mode=eager", "logger=none", "data.batch_size=32")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(*asked, f"hydra.run.dir={whole}", ranks=2).returncode == 0
    whole_losses = [(record.train_loss, record.val_loss) for record in read_epochs(whole)]
    within, between = "trainer.max_steps=13", "trainer.max_epochs=1"
    for end, num_workers in ((within, 0), (within, 1), (between, 0), (between, 4)):
        words = (*asked, f"data.num_workers={num_workers}", f"hydra.run.dir={parts}")
        assert train(*words, end, "ckpt_path=null", ranks=2).returncode == 0
        done = train(*words, f"ckpt_path='{parts}/checkpoints/last.ckpt'", ranks=2)
        assert done.returncode == 0, done.stderr
        assert same(parameters(parts), parameters(whole)), (end, num_workers)
        assert [(record.train_loss, record.val_loss) for record in read_epochs(parts)] == whole_losses
        shutil.rmtree(parts)


def test_the_last_checkpoint_is_that_of_the_last_epoch_and_the_best_that_of_the_lowest_loss(compose, tmp_path):
    losses = []
    asked = ("compile.mode=eager", "trainer.max_epochs=2", "trainer.limit_train_batches=2", "optimizer.lr=0.03")
    run(compose(*asked), on_epoch=lambda record: losses.append(record.val_loss))
    assert losses[1] > losses[0]
    epochs = {}
    for name in ("best", "last"):
        epochs[name] = torch.load(tmp_path / "run" / "checkpoints" / f"{name}.ckpt", weights_only=True)["epoch"]
    assert epochs == {"best": 0, "last": 1}


def test_a_full_disk_leaves_the_checkpoint_before_and_the_measurements(tmp_path):
    script = tmp_path / "full.py"
    script.write_text(f"""
import resource, signal
from pathlib import Path
from trainkit.config.composition import compose_config
from trainkit.training.run import run

def fill(record):
    if record.epoch == 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

words = ["logger=none", "compile.mode=eager", "trainer.accelerator=cpu", "trainer.max_epochs=3"]
words += ["trainer.limit_train_batches=6", "model.width=64"]
run(compose_config(words, Path("{CONF}"), "{tmp_path}"), fill)
""")
    done = forked.python(script, cwd=tmp_path)
    path = tmp_path / "checkpoints" / "best.ckpt"
    problem = f"{path}: the checkpoint was not written: File too large; make room, or choose another hydra.run.dir"
    assert done.stderr.splitlines()[-1] == problem
    assert "Traceback" not in done.stderr
    row = read_row(tmp_path)
    assert (row.status, row.error) == ("failed", f"CheckpointWriteError: {problem}")
    assert row.num_epochs == 2
    assert sorted(file.name for file in path.parent.iterdir()) == ["best.ckpt", "last.ckpt"]
    assert torch.load(path, weights_only=True)["epoch"] == 0


def test_a_run_removes_what_a_kill_left_of_a_checkpoint(compose, tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / ".best-0-3.ckpt.tmp").touch()
    run(compose("compile.mode=eager", *QUICK))
    assert sorted(path.name for path in folder.iterdir()) == ["best.ckpt", "last.ckpt"]


@pytest.fixture
def checkpoint(compose, tmp_path):
    run(compose("compile.mode=eager", *QUICK, run_dir=tmp_path / "first"))
    return tmp_path / "first" / "checkpoints" / "last.ckpt"


def test_a_damaged_checkpoint_is_one_line(checkpoint, compose):
    content = bytearray(checkpoint.read_bytes())
    resumed = compose("trainer.max_epochs=3", f"ckpt_path='{checkpoint}'")
    content[len(content) // 2] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"is damaged \(archive/data/\d+ fails its checksum\); use another checkpoint"
    ):
        run(resumed)
    checkpoint.write_bytes(content[: len(content) // 2])
    with pytest.raises(ConfigError, match=r"last\.ckpt: is cut off, or no checkpoint .*; use another checkpoint"):
        run(resumed)


def test_what_a_checkpoint_lacks_is_one_line(checkpoint, compose):
    content = torch.load(checkpoint, weights_only=True)
    resumed = compose("trainer.max_epochs=3", f"ckpt_path='{checkpoint}'")
    torch.save(content | {"optimizer_states": [], "loops": {}}, checkpoint)
    with pytest.raises(ConfigError, match=r"has no optimizer_states, loops, which training goes on with"):
        run(resumed)
    torch.save({"epoch": 3}, checkpoint)
    with pytest.raises(ConfigError, match=r"not a checkpoint of a run: has no global_step, state_dict; give another"):
        run(resumed)


@pytest.mark.parametrize(("first", "then"), [("default", "eager"), ("eager", "default")])
def test_a_checkpoint_written_in_one_mode_loads_in_the_other(first, then, compose, tmp_path):
    asked = ("compile.backend=aot_eager", *QUICK[1:])
    run(compose(*asked, f"compile.mode={first}", "trainer.max_epochs=1", run_dir=tmp_path / "first"))
    keys = parameters(tmp_path / "first").keys()
    assert all(key.startswith("objective.net.") for key in keys)
    assert not any("_orig_mod" in key for key in keys)
    path = tmp_path / "first" / "checkpoints" / "last.ckpt"
    config = compose(*asked, f"compile.mode={then}", "trainer.max_epochs=2", f"ckpt_path='{path}'")
    assert run(config).status == "ok"
    assert parameters(tmp_path / "run").keys() == keys


def test_max_steps_goes_with_resuming(compose, tmp_path):
    asked = ("compile.mode=eager", network("Blocks"), "trainer.max_epochs=9", "trainer.schedule=cosine")
    run(compose(*asked, "trainer.max_steps=66", run_dir=tmp_path / "whole"))
    run(compose(*asked, "trainer.max_steps=44", "trainer.schedule=constant", run_dir=tmp_path / "parts"))
    path = tmp_path / "parts" / "checkpoints" / "last.ckpt"
    row = run(compose(*asked[:3], "trainer.max_steps=66", f"ckpt_path='{path}'", run_dir=tmp_path / "then"))
    assert (row.status, row.num_steps, row.num_epochs) == ("ok", 22, 1)
    run(compose(*asked[:3], "trainer.max_steps=66", run_dir=tmp_path / "constant"))
    assert same(parameters(tmp_path / "then"), parameters(tmp_path / "constant"))
    assert not same(parameters(tmp_path / "whole"), parameters(tmp_path / "constant"))
    with pytest.raises(ConfigError, match=r"trainer\.max_steps = 44: the checkpoint has finished 44 steps"):
        run(compose(*asked[:3], "trainer.max_steps=44", f"ckpt_path='{path}'", run_dir=tmp_path / "again"))


def test_a_checkpoint_of_another_optimizer_is_one_line(compose, tmp_path):
    run(compose("compile.mode=eager", *QUICK, run_dir=tmp_path / "first"))
    path = tmp_path / "first" / "checkpoints" / "last.ckpt"
    with pytest.raises(ConfigError, match="is of another optimizer than"):
        run(compose("optimizer=sgd", "trainer.max_epochs=9", f"ckpt_path='{path}'"))


DECAYED = "optimizer.groups._target_=trainkit.training.parameter_groups.decay_matrices"


@pytest.mark.parametrize(
    ("first", "then", "complaint"),
    [
        ((), ("optimizer.lr=0.5",), r"optimizer\.lr = 0\.5: the checkpoint has 0\.002"),
        (("trainer.warmup_steps=20",), ("trainer.warmup_steps=20", "optimizer.lr=0.5"), r"optimizer\.lr = 0\.5: "),
        ((), ("+optimizer.betas=[0.5,0.9]",), r"optimizer\.betas = .*0\.5, 0\.9.: the checkpoint has .0\.9, 0\.999"),
        (
            (DECAYED,),
            (DECAYED, "optimizer.weight_decay=0.1"),
            r"optimizer\.weight_decay = 0\.1 \(parameter group 1\): ",
        ),
        ((DECAYED,), (), r"has 2 parameter groups, and optimizer\.groups gives 1; give the optimizer it was written"),
        (("optimizer=sgd",), ("optimizer=sgd", "optimizer.momentum=0.5"), r"optimizer\.momentum = 0\.5: "),
    ],
)
def test_other_settings_of_the_optimizer_than_the_checkpoints_are_one_line(first, then, complaint, compose, tmp_path):
    asked = ("compile.mode=eager", network("Blocks"), "trainer.limit_train_batches=3", "trainer.max_epochs=2")
    run(compose(*asked, *first, "trainer.max_epochs=1", run_dir=tmp_path / "first"))
    path = tmp_path / "first" / "checkpoints" / "last.ckpt"
    assert run(compose(*asked, *first, f"ckpt_path='{path}'")).status == "ok"
    with pytest.raises(ConfigError, match=complaint) as refusal:
        run(compose(*asked, *then, f"ckpt_path='{path}'"))
    assert len(refusal.value.complaints) == 1
    content = torch.load(path, weights_only=True)
    del content["config"]  # as older versions wrote it
    torch.save(content, path)
    with pytest.raises(ConfigError, match=complaint):
        run(compose(*asked, *then, f"ckpt_path='{path}'"))
    assert run(compose(*asked, *first, f"ckpt_path='{path}'")).status == "ok"


class HalvesRate(Callback):
    def on_train_epoch_start(self, trainer, task):
        trainer.optimizers[0].param_groups[0]["lr"] /= 2


def test_what_a_callback_or_another_torch_did_to_the_optimizer_is_no_other_setting(compose, tmp_path):
    asked = ("compile.mode=eager", *QUICK[1:], f"+callbacks.halves._target_={__name__}.HalvesRate")
    run(compose(*asked, "trainer.max_epochs=1", "optimizer.foreach=true", run_dir=tmp_path / "first"))
    path = tmp_path / "first" / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    (group,) = content["optimizer_states"][0]["param_groups"]
    assert group["lr"] == 1e-3
    del group["decoupled_weight_decay"]  # torch 2.6 had no such setting
    torch.save(content, path)
    resumed = compose(*asked, "trainer.max_epochs=2", "optimizer.fused=true", f"ckpt_path='{path}'")
    assert run(resumed).status == "ok"
    content = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    (group,) = content["optimizer_states"][0]["param_groups"]
    assert (group["lr"], group["decoupled_weight_decay"], group["fused"]) == (5e-4, True, True)


def test_other_batches_than_those_of_the_epoch_that_a_checkpoint_is_in_are_one_line(compose, tmp_path):
    asked = (*NINE_STEPS, "compile.mode=eager", f"job.runs_dir='{tmp_path}/runs'")
    run(compose(*asked, "trainer.max_steps=12", run_dir=tmp_path / "inside"))
    run(compose(*asked, "trainer.max_epochs=1", run_dir=tmp_path / "end"))
    problem = "the checkpoint was written inside of an epoch with {}, and the rest would have other batches; request"
    for other, saved in (
        ("seed = 1", "0"),
        ("data.batch_size = 32", "64"),
        ("data.val_fraction = 0.3", "0.2"),
        ("trainer.limit_train_batches = 10", "9"),
    ):
        setting = other.replace(" ", "")
        with pytest.raises(ConfigError) as refusal:
            run(compose(*asked, setting, f"ckpt_path='{tmp_path}/inside/checkpoints/last.ckpt'"))
        (line,) = refusal.value.complaints
        assert line.startswith(f"{other}: {problem.format(saved)}")
        resumed = run(compose(*asked, setting, f"ckpt_path='{tmp_path}/end/checkpoints/last.ckpt'"))
        assert resumed.status == "ok", setting
    resumed = run(compose(*asked, "data.num_workers=1", f"ckpt_path='{tmp_path}/inside/checkpoints/last.ckpt'"))
    assert resumed.status == "ok"


def test_a_checkpoint_of_another_network_or_of_a_finished_run_is_one_line(compose, tmp_path):
    run(compose("compile.mode=eager", *QUICK, run_dir=tmp_path / "first"))
    path = tmp_path / "first" / "checkpoints" / "last.ckpt"
    with pytest.raises(ConfigError, match="is of another network than model = simple_cnn"):
        run(compose("model.width=8", "trainer.max_epochs=3", f"ckpt_path='{path}'"))
    with pytest.raises(ConfigError, match=r"trainer\.max_epochs = 2: the checkpoint has finished 2 epochs"):
        run(compose(*QUICK, f"ckpt_path='{path}'"))
