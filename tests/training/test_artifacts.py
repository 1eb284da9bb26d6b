"""The file of what was compiled: written, loaded, foreign, broken; by one rank and by two."""

import re
from pathlib import Path

import pytest
import torch

from tests import forked
from tests.conftest import ROOT
from tests.networks import network
from trainkit.results.files import read_row
from trainkit.training import artifacts as training_artifacts
from trainkit.training.artifacts import artifacts_path
from trainkit.training.run import run

QUICK = ("trainer.max_epochs=1", "trainer.limit_train_batches=2", "trainer.limit_val_batches=0")
# The graphs of DDP's own optimizer are others than those of one rank.
COLD = (network("Plain"), *QUICK, "compile.cache=cold", "ddp.optimize_ddp=no_optimization")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """The file of a run with a cold cache, in a process without the settings that other tests have left in this one:
    they are in torch's keys."""
    folder = tmp_path_factory.mktemp("written")
    file = folder / "new folder" / "compiled.bin"
    words = ["logger=none", *COLD, "trainer.accelerator=cpu", f"compile.artifacts={file}", "hydra.run.dir=run"]
    done = forked.python(ROOT / "train.py", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    row = read_row(folder / "run")
    assert (row.status, row.artifacts, row.artifacts_reason) == ("ok", "written", None)
    assert (row.cache_found, row.artifacts_bytes) == ("cold", file.stat().st_size)
    assert [path.name for path in file.parent.iterdir()] == ["compiled.bin"]  # and no temporary file
    return file


def test_a_fresh_cache_finds_all_of_it_in_the_file(written, train, tmp_path):
    content = written.read_bytes()
    done = train(*COLD, "logger=none", f"compile.artifacts={written}", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    row = read_row(tmp_path / "run")
    assert (row.status, row.artifacts, row.cache_found, row.cache_misses) == ("ok", "loaded", "warm", 0)
    assert row.artifacts_bytes == len(content)
    assert written.read_bytes() == content


def test_a_file_of_other_settings_is_foreign_and_stays(written, compose, capsys):
    content = written.read_bytes()
    row = run(compose(*COLD, f"compile.artifacts={written}", "data.batch_size=32", "compile.dynamic=false"))
    assert (row.status, row.artifacts, row.cache_found) == ("ok", "foreign", "cold")
    reason = "data.batch_size is 64 there, 32 here; compile.dynamic is null there, false here"
    assert row.artifacts_reason == reason
    assert capsys.readouterr().err == f"compile.artifacts = {written}: foreign: {reason}\n"
    assert written.read_bytes() == content


def test_in_a_folder_each_setting_has_a_file(compose, tmp_path, capsys, needs_compiler):
    folder = tmp_path / "compiled"  # the run makes it
    states = []
    for words in ((), (), ("ddp.bucket_cap_mb=7",), ("compile.mode=eager",)):
        row = run(compose(network("Plain"), *QUICK, f"compile.artifacts={folder}/", *words))
        states.append((row.status, row.artifacts))
    assert states == [("ok", "written"), ("ok", "loaded"), ("ok", "written"), ("ok", None)]
    assert len(list(folder.iterdir())) == 2
    assert "compile.artifacts" not in capsys.readouterr().err


def test_the_name_in_a_folder_is_of_the_model_and_a_digest(compose, tmp_path, monkeypatch):
    def name(*words: str) -> str:
        path = artifacts_path(compose(f"compile.artifacts={tmp_path}", *words), torch.device("cpu"))
        assert path.parent == tmp_path
        return path.name

    plain = name()
    assert re.fullmatch(r"simple_cnn-[0-9a-f]{12}\.bin", plain)
    same = ("seed=7", "optimizer.lr=0.5", "compile.cache=cold", "data.num_workers=2", "data.val_fraction=0.3")
    assert name(*same) == plain  # nothing that is compiled
    changes = ("compile.mode=max-autotune", "model.width=64", "amp=bf16", "objective.dim=1")
    others = [name(change) for change in (*changes, "data.batch_size=32", "data=synthetic")]
    others.append(name("data=synthetic", "data.image_size=64"))
    others.append(name("model=gpt2", "data=synthetic", "data.seq_len=64"))
    others.append(name("model=gpt2", "data=synthetic", "data.seq_len=32"))
    monkeypatch.setattr(training_artifacts, "num_ranks", lambda: 2)
    others.append(name())
    assert len({plain, *others}) == 11


def test_a_file_without_an_extension_is_no_folder(compose):
    config = compose("compile.artifacts=new/compiled")
    assert artifacts_path(config, torch.device("cpu")) == Path("new/compiled")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda content: content[:-1], "it is not whole, or was changed"),
        (lambda content: content[:40], "its header cannot be read"),
        (lambda content: b"", "it is no file of compile artifacts"),
    ],
)
def test_a_broken_file_is_one_line_and_a_cold_compile(spoil, reason, written, compose, tmp_path, capsys):
    file = tmp_path / "broken.bin"
    file.write_bytes(spoil(written.read_bytes()))
    row = run(compose(*COLD, "compile.backend=aot_eager", f"compile.artifacts={file}"))
    assert (row.status, row.artifacts, row.artifacts_reason) == ("ok", "broken", reason)
    assert capsys.readouterr().err == f"compile.artifacts = {file}: broken: {reason}\n"


def test_a_file_that_cannot_be_written_loses_no_row(compose, tmp_path, capsys, needs_compiler):
    (tmp_path / "file").touch()
    row = run(compose(network("Plain"), *QUICK, f"compile.artifacts={tmp_path / 'file' / 'compiled.bin'}"))
    assert (row.status, row.artifacts, row.num_steps) == ("ok", "unwritten", 2)
    assert row.artifacts_reason in capsys.readouterr().err


def test_an_eager_run_has_nothing_to_write(compose, tmp_path):
    row = run(compose(*COLD, "compile.mode=eager", f"compile.artifacts={tmp_path / 'compiled.bin'}"))
    assert (row.status, row.artifacts) == ("ok", None)
    assert not (tmp_path / "compiled.bin").exists()


def test_two_ranks_load_what_one_has_compiled(written, train, tmp_path):
    done = train(*COLD, "logger=none", f"compile.artifacts={written}", "hydra.run.dir=run", ranks=2)
    assert done.returncode == 0, done.stderr
    row = read_row(tmp_path / "run")
    assert (row.world_size, row.artifacts, row.cache_misses) == (2, "loaded", 0)


RANK = """import os, sys, time
import torch, torch.distributed as dist
from tests.conftest import CONF
from trainkit.config.composition import compose_config
from trainkit.compiler import artifacts as file
from trainkit.training.artifacts import load_artifacts, save_artifacts
dist.init_process_group("gloo")
words = ["logger=none", "compile.artifacts=" + sys.argv[1]]
config = compose_config(words, CONF, os.getcwd())
def load(path, fingerprint):
    time.sleep(1)  # the other rank would be through by now if it did not wait
    open("loaded", "x").close()
    return 7
file.load = load
columns = load_artifacts(config, torch.device("cpu"))
assert os.path.exists("loaded")
assert (columns.artifacts, columns.artifacts_bytes) == ("loaded", 7)
torch.compile(lambda x: x + 1)(torch.ones(3))
config.compile.artifacts = "both.bin"
columns = save_artifacts(config, torch.device("cpu"))
if dist.get_rank() == 0:
    assert (columns.artifacts, columns.artifacts_bytes) == ("written", os.path.getsize("both.bin"))
config.compile.artifacts = "folder/"
assert load_artifacts(config, torch.device("cpu")).artifacts is None
save_artifacts(config, torch.device("cpu"))
if dist.get_rank() == 0:
    os.remove("loaded")
dist.barrier()
assert load_artifacts(config, torch.device("cpu")).artifacts == "loaded"
assert os.path.exists("loaded") and len(os.listdir("folder")) == 1
"""


def test_of_ranks_with_one_cache_the_first_loads_and_writes(written, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    done = forked.python(script, written, cwd=tmp_path, ranks=2)
    assert done.returncode == 0, done.stderr
