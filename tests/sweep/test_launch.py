"""Many processes: two ranks by either launcher, and sweeps of fresh processes."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests import forked
from tests.processes import children, wait_until
from trainkit.results.files import read_epochs, read_row, write_row
from trainkit.results.runs import read_rows

ROOT = Path(__file__).parents[2]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
EAGER = ("compile.mode=eager", "logger=none")
TINY = ("model.width=4", "trainer.max_epochs=1", "trainer.limit_train_batches=5")


def wandb_runs(run_dir: Path) -> list[Path]:
    return sorted(run_dir.rglob("run-*.wandb"))


def wandb_content(path: Path, *options: str) -> str:
    """History rows and config of an offline W&B file, or with `--summary` that, as W&B's own reader prints them."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def start(tmp_path):
    """Starts train.py in tmp_path. What a failed test leaves running is stopped, and with it the job that it runs."""
    processes: list[subprocess.Popen] = []

    def started(*words: str, **options) -> subprocess.Popen:
        command = [sys.executable, str(ROOT / "train.py"), *words, *EAGER, "trainer.accelerator=cpu"]
        processes.append(subprocess.Popen(command, cwd=tmp_path, text=True, **options))
        return processes[-1]

    yield started
    for process in processes:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def single_process(tmp_path_factory, text_file):
    """The losses of one process with the doubled batch: what two ranks must reproduce."""
    folder = tmp_path_factory.mktemp("single")
    done = forked.python(ROOT / "train.py", *words_of_text(folder, text_file, 16), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def words_of_text(folder: Path, text_file: Path, batch_size: int) -> list[str]:
    """Three epochs of mini_transformer on the text."""
    return [
        "model=mini_transformer", "data=text", f"data.path={text_file}", f"data.cache_dir={folder}",
        f"data.batch_size={batch_size}", "data.seq_len=16", "data.vocab_size=300", "model.dim=32", "model.depth=1",
        "trainer.max_epochs=3", "compile.backend=aot_eager", "trainer.accelerator=cpu", "hydra.run.dir=run",
    ]  # fmt: skip


def run_ranks(words: list[str], folder: Path) -> None:
    """Run `python WORDS` in a folder, each rank on one thread."""
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("launcher", [TORCHRUN, ()], ids=["torchrun", "lightning"])
def test_two_ranks_train_as_one_process_with_the_doubled_batch(launcher, single_process, text_file, tmp_path):
    words = [*launcher, str(ROOT / "train.py"), *words_of_text(tmp_path, text_file, 8)]
    words += [] if launcher else ["trainer.devices=2"]
    run_ranks(words, tmp_path)
    ours, single = list(read_epochs(tmp_path / "run")), list(read_epochs(single_process))
    assert len(ours) == 3
    for a, b in zip(ours, single, strict=True):
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-4)
        assert a.val_loss == pytest.approx(b.val_loss, rel=1e-4)
        assert a.val_accuracy == pytest.approx(b.val_accuracy, abs=2e-3)
        assert (a.num_steps, a.num_samples) == (b.num_steps, b.num_samples)
    row = read_row(tmp_path / "run")
    assert (row.status, row.world_size, row.strategy, row.batch_size) == ("ok", 2, "ddp", 8)
    assert len(read_rows(tmp_path)) == 1
    assert len(wandb_runs(tmp_path)) == 1
    assert [path.name for path in tmp_path.glob("*") if path.suffix != ".json"].count("run") == 1


def test_each_rank_has_a_profile_of_its_own_also_where_all_are_number_0_of_their_host(tmp_path):
    words = [*TORCHRUN, "--virtual-local-rank", str(ROOT / "train.py"), *TINY, *EAGER, "trainer.accelerator=cpu"]
    words += ["trainer.profiler=simple", "hydra.run.dir=run"]
    run_ranks(words, tmp_path)
    names = sorted(path.name for path in (tmp_path / "run" / "profile").iterdir())
    assert names == ["fit-simple-rank0-0.txt", "fit-simple-rank1-0.txt"]


def test_wandb_offline_files_hold_the_epochs_the_row_and_the_config(single_process):
    (path,) = wandb_runs(single_process)
    content = wandb_content(path)
    for name in (
        "epoch/train_time_s", "epoch/val_time_s", "epoch/peak_allocated_gib", "epoch/peak_reserved_gib", "train/loss",
        "val/loss", "val/accuracy",
    ):  # fmt: skip
        assert name in content, name
    assert "trainkit.models.mini_transformer.MiniTransformer" in content
    summary = wandb_content(path, "--summary")
    assert "step_time_ms_p50" in summary
    assert read_row(single_process).run_id in summary


def test_what_torchrun_launched_must_be_what_was_asked(train, tmp_path):
    done = train("trainer.devices=4", "hydra.run.dir=run", ranks=2)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("trainer.devices")]
    assert lines == [
        "trainer.devices = 4: torchrun launched 2 processes on this node; "
        "use torchrun --nproc-per-node=4, or leave trainer.devices out"
    ]
    assert not list(tmp_path.rglob("epochs.jsonl"))


def test_a_rank_that_fails_alone_is_in_the_row(train, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os, torch\n"
        "from tests.networks import Plain\n"
        "class Net(Plain):\n"
        "    def forward(self, images):\n"
        "        if self.training and os.environ['RANK'] == '1':\n"
        "            raise torch.OutOfMemoryError('rank one has no memory')\n"
        "        return super().forward(images)\n"
    )
    done = train("model._target_=mine.Net", *EAGER, "hydra.run.dir=run", ranks=2)
    assert done.returncode != 0
    row = read_row(tmp_path / "run")
    assert (row.status, row.error) == ("oom", "rank 1, step 1 (epoch 0): OutOfMemoryError: rank one has no memory")


def test_a_killed_run_leaves_the_row_of_its_last_epoch(start, tmp_path):
    process = start("trainer.max_epochs=10000", "hydra.run.dir=run", stdout=subprocess.DEVNULL)
    wait_until(lambda: len(list(read_epochs(tmp_path / "run"))) >= 2, process)
    process.kill()
    process.wait()
    row = read_row(tmp_path / "run")
    assert (row.status, row.num_epochs >= 1, row.step_time_ms_p50 > 0) == ("interrupted", True, True)


def test_sigterm_and_ctrl_c_end_a_run_with_an_interrupted_row(start, tmp_path):
    for number in (signal.SIGTERM, signal.SIGINT):
        run_dir = tmp_path / number.name
        process = start(
            "trainer.max_epochs=10000", f"hydra.run.dir={run_dir}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(lambda at=run_dir: list(read_epochs(at)), process)
        process.send_signal(number)
        assert process.wait(60) != 0
        row = read_row(run_dir)
        assert (row.status, row.error) == ("interrupted", f"stopped by {number.name}")


def test_a_sweep_gives_its_comparison_to_wandb_as_a_run_of_its_group(train, tmp_path):
    words = ("-m", "compile.mode=eager,default", "compile.backend=eager", "sweep=both", *TINY)
    done = train(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "runs" / "sweeps" / "both"
    (path,) = wandb_runs(folder / "wandb")
    content = wandb_content(path)
    for word in ("both-comparison", "comparison.table.json", "step_time_ms", "html-file"):
        assert word in content, word
    (table,) = folder.glob("wandb/**/comparison_*.table.json")
    assert {line[1]: line[2] for line in json.loads(table.read_text())["data"]} == {"eager": 1, "default": 1}
    jobs = [job for job in wandb_runs(folder) if job != path]
    assert len(jobs) == 2
    for job in jobs:
        assert '"both"' in wandb_content(job)  # the same group


def test_a_failed_job_runs_again_once_the_file_of_its_network_has_changed(train, tmp_path):
    network = (
        "from trainkit.models.simple_net import SimpleNet\nclass Net(SimpleNet):\n    def forward(self, images):\n"
    )
    (tmp_path / "mine.py").write_text(network + "        raise RuntimeError('a defect')\n")
    words = ("-m", "model._target_=mine.Net", "compile.mode=eager", "sweep=mended", *TINY, "logger=none")
    assert train(*words).returncode == 1
    assert "finished before, failed" in train(*words).stdout
    (tmp_path / "mine.py").write_text(network + "        return super().forward(images)\n")
    mended = train(*words)
    assert (mended.returncode, mended.stdout.count("finished before")) == (0, 0)
    assert "finished before, ok" in train(*words).stdout
    rows = read_rows(tmp_path / "runs" / "sweeps" / "mended")
    assert [row.status for row in rows] == ["failed", "ok"]
    assert len({row.network_digest for row in rows}) == 2


def test_a_sweep_compares_and_skips_what_it_has_when_started_again(train, tmp_path):
    words = ("-m", "compile.mode=eager,default", "compile.backend=eager", "sweep=again", *TINY, "logger=none")
    done = train(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read_rows(tmp_path / "runs" / "sweeps" / "again")
    assert [(row.compile_mode, row.repeat, row.status) for row in rows] == [("eager", 0, "ok"), ("default", 0, "ok")]
    assert {row.sweep_id for row in rows} == {"again"}
    assert all("sweep=again" not in row.overrides for row in rows)
    assert "speed-up" in done.stdout
    (tmp_path / "runs" / "sweeps" / "again" / "diagnosis.json").write_text("[]")
    calls = tmp_path / "runs" / "sweeps" / "again" / "forward" / "000-eager"  # a sweep of the other script, in this one
    calls.mkdir(parents=True)
    write_row(calls, replace(rows[0], kind="forward", repeat=2))
    older = tmp_path / "runs" / "sweeps" / "again" / "010-older"
    older.mkdir()
    write_row(older, replace(rows[0], schema_version=2, repeat=1))
    again = train(*words, "hydra.launcher.repeats=2")
    assert (again.returncode, again.stdout.count("finished before")) == (0, 2)
    assert "diagnosis.json is not a diagnosis: it = []: expected Diagnosis; it is left out of the page" in again.stdout
    rows = [row for row in read_rows(tmp_path / "runs" / "sweeps" / "again") if row.kind == "train"]
    assert [(row.compile_mode, row.repeat, row.schema_version) for row in rows] == [
        ("eager", 0, 3), ("default", 0, 3), ("eager", 1, 2), ("eager", 1, 3), ("default", 1, 3),
    ]  # fmt: skip
    assert {row.status for row in rows} == {"ok"}


def test_a_sweep_goes_on_after_jobs_that_raise_are_killed_crash_run_out_of_memory_or_take_too_long(train, tmp_path):
    networks = ("Raises", "Killed", "Crashes", "OutOfMemory", "Sleeps", "Plain")
    targets = ",".join(f"tests.networks.{name}" for name in networks)
    done = train("-m", f"model._target_={targets}", "sweep=s", *EAGER, *TINY, "hydra.launcher.timeout_s=15")
    assert done.returncode == 1
    rows = {row.overrides[0].rsplit(".", 1)[1]: row for row in read_rows(tmp_path / "runs" / "sweeps" / "s")}
    assert {name: rows[name].status for name in networks} == {
        "Raises": "failed", "Killed": "failed", "Crashes": "failed", "OutOfMemory": "oom", "Sleeps": "timeout",
        "Plain": "ok",
    }  # fmt: skip
    assert rows["Raises"].error.startswith("ArithmeticError: this network always fails (at ")
    assert rows["Killed"].error == "killed by SIGKILL"
    assert rows["Crashes"].error == "killed by SIGSEGV"
    assert rows["Sleeps"].error == "stopped after 15 s (hydra.launcher.timeout_s)"
    assert rows["Killed"].device_name  # what was known before it was killed is kept
    for name in set(networks) - {"Plain"}:
        assert rows[name].error.split(":")[0] in done.stdout
    for name, words in (("Raises", "Traceback"), ("Crashes", 'networks.py", line ')):
        (run_dir,) = (tmp_path / "runs" / "sweeps" / "s").glob(f"*{name}")
        assert words in (run_dir / "output.log").read_text()


def test_a_job_that_cannot_be_run_as_asked_is_a_row_with_the_complaint(train, tmp_path):
    done = train("-m", "data.batch_size=64,-1", "sweep=s", *EAGER, *TINY)
    assert done.returncode == 1
    rows = read_rows(tmp_path / "runs" / "sweeps" / "s")
    assert [(row.status, row.batch_size) for row in rows] == [("ok", 64), ("failed", -1)]
    assert rows[1].error.startswith("data.batch_size = -1: expected a whole number of at least 1")


@pytest.mark.parametrize(
    ("script", "words", "line"),
    [
        ("train.py", ["experiment=studies/deadline"], "job.kind = forward: train.py trains; use scripts/bench.py\n"),
        (
            "train.py",
            ["forward.deadline_ms=1,2"],
            "forward.deadline_ms: train.py trains; use it with scripts/bench.py\n",
        ),
        (
            "scripts/bench.py",
            ["optimizer.lr=1,2"],
            "optimizer.lr: belongs to training, and scripts/bench.py does not train; leave it out\n",
        ),
    ],
)
def test_a_sweep_of_the_other_script_is_one_line_before_its_first_job(tmp_path, script, words, line):
    done = subprocess.run(
        [sys.executable, str(ROOT / script), "-m", *words], cwd=tmp_path,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout) == (2, line, "")
    assert not list(tmp_path.rglob("row.json"))


def test_an_interrupted_sweep_ends_its_job_and_goes_on_when_started_again(train, start, tmp_path):
    words = ["-m", "seed=0,1", "sweep=s", "model._target_=mine.Net", "model.width=4", "trainer.max_epochs=2"]
    slow = "from tests.networks import Plain, Sleeps\nclass Net(Sleeps):\n    pass\n"
    (tmp_path / "mine.py").write_text(slow)
    env = os.environ | {"PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{tmp_path}"}
    process = start(*words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: read_rows(tmp_path), process)
    second = train("-m", "seed=2", "sweep=s", *EAGER)
    assert (second.returncode, second.stderr) == (
        2,
        "sweep = s: is running already; wait for it, or use another name\n",
    )
    for child in children(process.pid):  # as where a machine ends all processes of a user
        os.kill(child, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert err == ""
    assert "interrupted; the same command with sweep=s goes on" in out
    assert [row.status for row in read_rows(tmp_path)] == ["interrupted"]
    (tmp_path / "mine.py").write_text(slow.replace("(Sleeps)", "(Plain)"))
    again = train(*words, *EAGER)
    assert again.returncode == 0, again.stdout + again.stderr
    assert [(row.seed, row.status) for row in read_rows(tmp_path)] == [(0, "interrupted"), (0, "ok"), (1, "ok")]


def test_a_sweep_runs_each_setting_with_each_number_of_processes_under_torchrun(train, tmp_path):
    (tmp_path / "mine.py").write_text(  # each rank sees its own GPU alone
        "import os, torch\n"
        "from tests.networks import Plain\n"
        "class Net(Plain):\n"
        "    def forward(self, images):\n"
        "        assert os.environ['LOCAL_RANK'] == '0' and os.getsid(0) == os.getpid()\n"
        "        threads = torch.get_num_threads()\n"
        "        assert not self.training or threads == int(os.environ.get('OMP_NUM_THREADS', threads))\n"
        "        assert os.environ['WORLD_SIZE'] == '1' or os.environ['CUDA_VISIBLE_DEVICES'] == os.environ['RANK']\n"
        "        return super().forward(images)\n"
    )
    words = ("-m", "model._target_=mine.Net", "compile.mode=eager", "sweep=s", "logger=none", *TINY)
    words = (*words, "data.batch_size=32")
    done = train(*words, "hydra.launcher.nproc_per_node=1,2", "hydra.launcher.scaling=strong")
    logs = [path.read_text() for path in tmp_path.rglob("output.log")]
    assert done.returncode == 0, (done.stdout, done.stderr, logs)
    rows = read_rows(tmp_path)
    assert [(row.status, row.world_size, row.batch_size) for row in rows] == [("ok", 1, 32), ("ok", 2, 16)]
    assert [path.parent.name for path in sorted(tmp_path.rglob("row.json"))] == ["000-32-1", "001-16-2"]
    again = train(*words, "hydra.launcher.nproc_per_node=[2,1]", "hydra.launcher.scaling=strong")
    assert (again.returncode, again.stdout.count("finished before")) == (0, 2)
    assert len(read_rows(tmp_path)) == 2


def test_an_error_of_a_sweep_is_no_mistake_of_the_user(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "from trainkit.commands.train import main\n"
        "from trainkit.sweep import sweep\n"
        "def fail(*_, **settings):\n"
        "    raise ValueError('a mistake of ours')\n"
        "sweep.run_sweep = fail\n"
        "main()\n"
    )
    done = forked.python(script, "-m", "optimizer.lr=0.1,-1", *EAGER, cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ValueError: a mistake of ours")


def test_the_last_checkpoint_of_two_ranks_loads_in_one(single_process):
    state = torch.load(single_process / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert all(key.startswith("objective.net.") for key in state)


def test_a_signal_that_python_loses_in_a_callback_of_its_own_comes_again(tmp_path):
    (tmp_path / "script.py").write_text("""
import os, signal, time, weakref
from trainkit import interruption
from trainkit.sweep.sweep import handle_signals

interruption.AGAIN_S = 2

class Ended: pass

stop = handle_signals()
ended = Ended()
callback = weakref.ref(ended, lambda _: os.kill(os.getpid(), signal.SIGTERM))
try:
    del ended
    print("lost", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("stopped", stop.exit_status)
""")
    done = forked.python(tmp_path / "script.py", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("lost\nstopped 143\n", "")
