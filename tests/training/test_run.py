"""One run in one process: what it trains, what it leaves on disk, how it resumes, and how it fails."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.exceptions import SIGTERMException

from tests import forked
from tests.conftest import CONF, parameters, same
from tests.networks import Raises, network
from trainkit.config.errors import ConfigError
from trainkit.metrics.foreign import ForeignProcesses
from trainkit.results.files import read_epochs, read_row
from trainkit.training import components
from trainkit.training.recorder import Recorder
from trainkit.training.run import run

QUICK = ("trainer.max_epochs=2", "trainer.limit_train_batches=6")
RAISES_AT = Raises.forward.__code__.co_firstlineno + 2  # the line of its raise


def test_a_run_leaves_the_row_and_the_records_of_the_contract(compose, tmp_path):
    seen = []
    row = run(compose("compile.backend=aot_eager", "trainer.max_epochs=3"), on_epoch=seen.append)
    assert row.status == "ok"
    assert read_row(tmp_path / "run") == row
    assert list(read_epochs(tmp_path / "run")) == seen
    assert [record.epoch for record in seen] == [0, 1, 2]
    assert all(record.num_steps == 22 and record.num_samples == 22 * 64 for record in seen)
    assert all(record.train_time_s > 0 and record.val_time_s > 0 for record in seen)
    assert all(record.peak_device_bytes > 2**20 for record in seen)
    assert seen[0].compile_time_s > 0
    assert row.compile_time_s == pytest.approx(sum(record.compile_time_s for record in seen))
    assert row.num_steps == 66
    assert 0 < row.num_steady_steps <= 66 - 3 - 1  # at least the compiling one and the warm-up are not steady
    assert 0 < row.step_time_ms_p50 <= row.step_time_ms_p90 <= row.step_time_ms_p99
    assert row.samples_per_s > 0
    assert 0 <= row.data_wait_frac < 1
    assert (row.model, row.data, row.batch_size, row.world_size) == ("simple_cnn", "digits", 64, 1)
    assert (row.compile_mode, row.effective_mode, row.num_graph_breaks) == ("default", "default", 0)
    assert row.num_graphs == 2  # training, validation
    assert row.torch_version == torch.__version__
    assert row.val_accuracy > 0.9
    json.loads((tmp_path / "run" / "row.json").read_text())


def test_a_config_of_calls_is_not_trained(compose):
    with pytest.raises(ConfigError, match=r"^job\.kind = forward: train\.py trains; use scripts/bench\.py$"):
        run(compose("job.kind=forward"))


def test_eager_compiles_nothing(compose):
    row = run(compose("compile.mode=eager", *QUICK))
    assert (row.num_graphs, row.compile_time_s, row.effective_mode) == (0, 0.0, "eager")


def test_the_processes_on_the_device_are_counted_before_forked_workers_or_autotuning_start_cuda(compose, monkeypatch):
    order = []

    def note_workers(compile_, device_type, is_counted):
        order.append("forked workers" if is_counted else "workers")

    def note_autotuning(on_start):
        order.append("autotuning")
        raise RuntimeError("all that is to be seen")

    class Noted(ForeignProcesses):
        def __init__(self, device):
            order.append("count")
            super().__init__(device)

    monkeypatch.setattr(components, "ForeignProcesses", Noted)
    monkeypatch.setattr(components.inductor, "on_autotuning", note_autotuning)
    monkeypatch.setattr(components, "start_workers_for", note_workers)
    assert run(compose("compile.mode=max-autotune")).status == "failed"
    assert order == ["workers", "count", "forked workers", "autotuning"]


def test_a_second_run_of_the_process_compiles_anew(compose, tmp_path):
    rows = [run(compose("compile.backend=eager", *QUICK, run_dir=tmp_path / name)) for name in ("a", "b")]
    assert rows[0].num_graphs == rows[1].num_graphs > 0
    assert rows[1].compile_time_s > 0


def test_scope_net_compiles_the_network_alone(compose):
    row = run(compose("compile.scope=net", "compile.backend=eager", *QUICK))
    assert (row.status, row.effective_mode, row.compile_scope) == ("ok", "default", "net")
    assert row.num_graphs > 0


def test_scope_net_of_a_bare_torch_class_is_an_error_because_nothing_would_be_compiled(compose, tmp_path):
    bare = ("model=simple_net", "model._target_=torch.nn.Flatten", "~model.width", "~model.channels")
    words = (*bare, "~model.image_size", "~model.num_classes", "compile.scope=net", "compile.backend=eager")
    with pytest.raises(ConfigError, match=r"compile\.scope = net: torch\.compile skips a bare Flatten of torch\.nn"):
        run(compose(*words))
    assert read_row(tmp_path / "run") is None


def test_a_graph_break_is_counted_once_with_its_line(compose, capsys):
    row = run(compose(network("Breaks"), "compile.backend=eager", *QUICK))
    assert row.num_graph_breaks == len(row.graph_breaks) == 1
    assert Path(row.graph_breaks[0].file).name == "networks.py"
    source = Path(row.graph_breaks[0].file).read_text().splitlines()
    assert 'print("here"' in source[row.graph_breaks[0].line - 1]


def test_fullgraph_makes_a_break_a_compile_error_and_on_error_eager_goes_on(compose, tmp_path, capsys):
    asked = (network("Breaks"), "compile.backend=eager", "compile.fullgraph=true", *QUICK)
    failed = run(compose(*asked, run_dir=tmp_path / "raise"))
    assert failed.status == "compile_error"
    assert failed.error
    row = run(compose(*asked, "compile.on_error=eager", run_dir=tmp_path / "eager"))
    assert (row.status, row.compile_mode, row.effective_mode) == ("ok", "default", "eager")
    assert "compile.on_error=eager" in row.effective_mode_reason
    assert same(parameters(tmp_path / "eager"), _eager_parameters(compose, tmp_path, asked))


def _eager_parameters(compose, tmp_path, asked):
    run(compose(*asked, "compile.mode=eager", run_dir=tmp_path / "plain"))
    return parameters(tmp_path / "plain")


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("Raises", "failed", f"ArithmeticError: this network always fails (at tests/networks.py:{RAISES_AT})"),
        ("OutOfMemory", "oom", "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."),
        ("NotANumber", "nan", "NonFiniteLossError: the training loss of epoch 0 is nan"),
    ],
)
def test_a_failure_is_a_row(name, status, reason, compose, tmp_path, capsys):
    row = run(compose(network(name), "compile.mode=eager"))
    assert (row.status, row.error) == (status, reason)
    assert read_row(tmp_path / "run") == row
    assert row.device_name


def test_nan_in_the_middle_ends_in_a_row_and_the_epoch_before_can_be_resumed(compose, tmp_path):
    asked = ("compile.mode=eager", "trainer.limit_train_batches=6", "trainer.max_epochs=3")
    row = run(compose(*asked, f"+callbacks.spoils._target_={__name__}.SpoilsParameters"))
    assert (row.status, row.error) == ("nan", "NonFiniteLossError: the training loss of epoch 1 is nan")
    resumed = run(compose(*asked, "ckpt_path=last"))
    assert (resumed.status, [record.epoch for record in read_epochs(tmp_path / "run")]) == ("ok", [0, 1, 2])
    assert resumed.train_loss < 3


class SpoilsParameters(Callback):
    """Makes a parameter NaN before the third step of the second epoch."""

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (1, 2):
            next(task.parameters()).data.fill_(float("nan"))


def test_a_run_that_is_stopped_prints_no_error_of_its_end(compose, capfd):
    row = run(compose("compile.mode=eager", f"+callbacks.stops._target_={__name__}.StopsAndFails"))
    assert (row.status, row.error) == ("interrupted", "stopped by SIGTERM")
    assert "Traceback" not in capfd.readouterr().err


class StopsAndFails(Callback):
    """Is stopped in training, and fails as it ends, as Lightning does whose workers have not begun."""

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        raise SIGTERMException

    def on_exception(self, trainer, task, exception):
        raise RuntimeError("of the end")


def test_a_network_that_exits_is_a_failure(compose, capfd):
    row = run(compose("compile.mode=eager", f"+callbacks.exits._target_={__name__}.Exits"))
    assert row.status == "failed"
    assert row.error.startswith("SystemExit: 3 (")
    assert row.error in capfd.readouterr().err


class Exits(Callback):
    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        sys.exit(3)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, None), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_in_its_last_row_says_so_and_does_not_end_with_0(
    number, code, compose, tmp_path, monkeypatch
):
    final_row = Recorder.final_row

    def stopped(*values, **named_values):
        os.kill(os.getpid(), number)
        return final_row(*values, **named_values)

    monkeypatch.setattr(Recorder, "final_row", stopped)
    with pytest.raises((KeyboardInterrupt, SystemExit)) as caught:
        run(compose("compile.mode=eager", "trainer.max_epochs=1"))
    assert getattr(caught.value, "code", None) == code  # train.py ends with 130 after a KeyboardInterrupt
    row = read_row(tmp_path / "run")
    assert (row.status, row.error) == ("interrupted", f"stopped by {number.name}")


def test_a_clock_that_is_set_back_changes_no_measurement(compose, monkeypatch):
    clock, calls = time.time, iter(range(10**9))
    monkeypatch.setattr("time.time", lambda: clock() - 3600 * next(calls))
    row = run(compose("compile.mode=eager", "trainer.max_epochs=2", "trainer.limit_train_batches=30"))
    assert (row.status, row.num_epochs) == ("ok", 2)
    assert 0 < row.step_time_ms_p50 < 60_000
    assert 0 < row.epoch_train_time_s < 600


def test_what_was_measured_before_a_failure_is_in_the_row(compose, tmp_path, monkeypatch, capsys):
    from trainkit.training import recorder as module

    real = module.append_epoch

    def fails_in_the_third(run_dir, record):
        if record.epoch == 2:
            raise OSError("disk full")
        real(run_dir, record)

    line = fails_in_the_third.__code__.co_firstlineno + 2
    monkeypatch.setattr(module, "append_epoch", fails_in_the_third)
    row = run(compose("compile.mode=eager", "trainer.max_epochs=4"))
    assert (row.status, row.error) == ("failed", f"OSError: disk full (at tests/training/test_run.py:{line})")
    assert row.num_epochs == 3
    assert row.step_time_ms_p50 > 0
    assert len(list(read_epochs(tmp_path / "run"))) == 2


def test_the_epochs_of_the_row_are_those_of_the_records(compose, tmp_path, capsys):
    row = run(compose(network("BreaksLate"), "compile.mode=eager", "trainer.max_epochs=5"))
    assert row.status == "failed"
    assert row.num_epochs == len(list(read_epochs(tmp_path / "run"))) == 1
    assert row.num_steps == 30  # the steps of the epoch that broke off are not lost
    (record,) = read_epochs(tmp_path / "run")
    assert (row.val_loss, row.val_accuracy) == (record.val_loss, record.val_accuracy) != (None, None)


def test_going_on_uncompiled_late_is_mixed_and_its_steps_count(compose, capsys):
    asked = ("compile.backend=eager", "compile.fullgraph=true", "compile.on_error=eager", "trainer.max_epochs=2")
    row = run(compose(network("PrintsLate"), *asked))
    assert (row.status, row.effective_mode) == ("ok", "mixed")
    assert "went on uncompiled" in row.effective_mode_reason
    counted = (row.num_superseded_steps, row.num_warmup_steps + row.num_steady_steps)
    assert (row.num_compiling_steps, *counted) == (1, 21, 22)  # the validation failed to compile: no step did again


def test_a_cold_cache_is_fresh_and_gone_afterwards(compose, tmp_path, monkeypatch, needs_compiler):
    import os

    before = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    asked = (network("Plain"), "compile.cache=cold", *QUICK, "trainer.limit_val_batches=0")
    for name in ("a", "b"):
        row = run(compose(*asked, run_dir=tmp_path / name))
        assert row.cache_hits == 0
        assert row.cache_misses > 0
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == before
    warm = [run(compose(asked[0], *asked[2:], run_dir=tmp_path / name)) for name in ("c", "d")]
    assert warm[1].cache_hits > 0


def test_a_cold_cache_does_not_try_out_the_vector_instructions_again(tmp_path, needs_compiler):
    script = tmp_path / "cold.py"
    script.write_text(f"""
import os
from pathlib import Path
from trainkit.config.composition import compose_config
from trainkit.training import components
from trainkit.training.recorder import Recorder
from trainkit.training.run import run

def show(record):
    sources = [path.read_text() for path in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.cpp")]
    print("sources", len(sources) > 0, sum("chk_kernel" in source for source in sources))

words = ["logger=none", "compile.cache=cold", "trainer.accelerator=cpu", "trainer.max_epochs=1", "model=op_chain"]
words += ["data=synthetic", "data.num_batches=2", "trainer.limit_val_batches=0"]
run(compose_config(words, Path("{CONF}"), "{tmp_path}"), show)
""")
    done = forked.python(script, cwd=tmp_path)
    assert "sources True 0" in done.stdout, done.stdout + done.stderr


def test_a_second_run_in_the_same_directory_sets_the_first_ones_files_aside(compose, tmp_path):
    small = ("model=simple_net", "data=synthetic", "data.num_batches=2", "trainer.max_epochs=2", "compile.mode=eager")
    rows = [run(compose(*small, f"seed={seed}")) for seed in range(3)]
    names = ["row.1.json", "row.2.json", "row.json"]
    kept = [json.loads((tmp_path / "run" / name).read_text()) for name in names]
    assert [row["seed"] for row in kept] == [0, 1, 2]
    assert len((tmp_path / "run" / "epochs.1.jsonl").read_text().splitlines()) == 2
    assert len(list(read_epochs(tmp_path / "run"))) == 2
    assert read_row(tmp_path / "run") == rows[2]


def test_an_epoch_that_cannot_be_written_is_a_failed_row_with_the_path(compose, tmp_path, capfd):
    epochs = tmp_path / "run" / "epochs.jsonl"

    def replace_by_folder(record):
        epochs.unlink()
        epochs.mkdir()

    settings = "model=simple_net", "data=synthetic", "data.num_batches=2", "compile.mode=eager", "trainer.max_epochs=3"
    row = run(compose(*settings, "trainer.accelerator=cpu"), replace_by_folder)
    reason = f"{epochs}: Is a directory; make room, or choose another hydra.run.dir"
    assert (row.status, row.error, row.num_epochs) == ("failed", reason, 2)
    assert capfd.readouterr().err.splitlines() == [reason]
