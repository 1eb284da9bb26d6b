"""`python train.py` as a user types it: exit status, one line for each mistake, no traceback."""

import gc
import importlib
import os
import re
import resource
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.processes import wait_until
from trainkit import cli


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["compile.mode=foo"], [r"compile\.mode = foo: expected one of eager, default, reduce-overhead, .*"]),
        (
            ["compile.mode=eager,default", "seed=a"],
            [
                r"compile\.mode = eager,default: expected one value; several are a list, \[.*, with -m",
                r"seed = a: expected a whole number",
            ],
        ),
        (
            ["-m", "model=op_chain,simple_cnn", "model.num_ops=2"],
            [r"model\.num_ops = 2: no setting of simple_cnn; \+\+model\.num_ops sets it for the others alone"],
        ),
        (["-m", "compile.mode=eager,foo"], [r"compile\.mode = foo: expected one of .*"]),
        (
            ["compile.mdoe=eager", "model=foo", "seed=a", "data.batch_size=-1"],
            [
                r"model = foo: expected one of .*mini_transformer, .*",
                r"compile\.mdoe = eager: no such setting; did you mean compile\.mode\?",
                r"seed = a: expected a whole number",
                r"data\.batch_size = -1: expected a whole number of at least 1; .*",
            ],
        ),
        (["experiment=studies/nope"], [r"experiment = studies/nope: expected one of studies/amp_and_memory, .*"]),
        (["experiment=nope"], [r"experiment = nope: expected one of .*sst2, full_size/\.\.\., studies/\.\.\."]),
        (["job.model=resnet50"], [r"job\.model = resnet50: is what trainkit says of a job; .* with model=resnet50"]),
        (["job.run_dir=x"], [r"job\.run_dir = x: is what trainkit says of a job; leave it out"]),
        (["nonsense"], [r"nonsense: cannot be read; .*"]),
        (["model.witdh=3"], [r"model\.witdh = 3: no such setting; did you mean model\.width\?"]),
        (
            ["model=own", "model._target_=mine.Net", "model.num_classes=10"],
            [r"model\.num_classes = 10: an argument of a class of yours is added, with \+model\.num_classes=10"],
        ),
        (
            ["data=dataset", "data.train._target_=mine.Train", "data.train.size=3", "+data.channels=1"],
            [r"data\.train\.size = 3: an argument .* is added, with \+data\.train\.size=3", r"model\..*"],
        ),
        (["data.train._target_=mine.Train"], [r"data\.train\._target_ = mine\.Train: a setting of data=dataset; .*"]),
        (
            ["data.path=x"],
            [r"data\.path = x: a setting of data=.*image_folder, .*table, text, .*; choose one of them"],
        ),
        (["model=mine.Net"], [r"model = mine\.Net: no file of conf/model; .* model=own model\._target_=mine\.Net"]),
        (["data=text"], [r"model = simple_cnn: takes images, but data = text gives tokens; .*"]),
        (["model=mini_transformer", "data=text"], [r"data\.path = .*; .*"]),
        (["model=mini_transformer", "data=text", "data.path=missing.txt"], [r"data\.path = missing\.txt: no .*; .*"]),
        (["amp=fp16"], [r"amp\.precision = 16-mixed: fp16 needs a GPU.*"]),
        (["trainer.memory_limit_gib=4"], [r"trainer\.memory_limit_gib = 4\.0: limits a GPU's memory; .*"]),
        (["compile.backend=foo"], [r"compile\.backend = foo: expected one of eager, aot_eager, .*"]),
        (["ckpt_path=missing.ckpt"], [r"ckpt_path = missing\.ckpt: no such file; .*"]),
        (["ckpt_path=last"], [r"ckpt_path = last: no run of this model and data left one; .*"]),
        (["ckpt_path=corrupt.ckpt"], [r"ckpt_path = corrupt\.ckpt: is cut off, or no checkpoint .*; .*"]),
        (["model._target_=models.nowhere.Net"], [r"model\._target_ = models\.nowhere\.Net.*; give a class of an .*"]),
        (
            ["model=resnet18", "data=dataset", "data.train._target_=mine.Train"],
            [r"model\.channels = .*: there is no data\.channels; add \+data\.channels=\.\.\. or set .*"],
        ),
        (["+compile.foo=1", "+bar=2"], [r"bar = 2: no such setting; .*", r"compile\.foo = 1: no such setting; .*"]),
        (["experiment=next_token", "model.width=4"], [r"model\.width = 4: a setting of model=.*simple_cnn, .*"]),
        (["model=mini_transformer", "data=text", "data.path=x", "seed=a"], [r"seed = a: expected a whole number"]),
        (["~compile.dynamic", "seed=b"], [r"~compile\.dynamic: .*", r"seed = b: expected a whole number"]),
        (["model=null"], [r"model = null: .*"]),
        (["seed=99999999999"], [r"seed = 99999999999: expected a whole number below 2\*\*32"]),
        (["hydra.run.dir=corrupt.ckpt/x"], [r"hydra\.run\.dir = .*corrupt\.ckpt.*: Not a directory; .*"]),
        (["optimizer.weight_decay=-1"], [r"optimizer\.weight_decay = -1: expected a number of at least 0; .*"]),
        (["optimizer._target_=torch.nn.Linear"], [r"optimizer\._target_ = torch\.nn\.Linear: .*"]),
        (["trainer.limit_train_batches=0.01"], [r".*limit_train_batches.*"]),
        (["-m", "sweep=../up", "seed=0,1"], [r"sweep = \.\./up: names a folder; .*"]),
        (["hydra.launcher.repeats=3"], [r"hydra\.launcher\.repeats = 3: belongs to a sweep; use it with -m"]),
        (["+model.colour=3"], [r"model = simple_cnn: .*colour.*; SimpleCNN takes \(.*\)"]),
        (["data.batch_size=100000"], [r"data\.batch_size = 100000: .*"]),
        (["model=[-1]"], [r"model = \[-1\]: expected one name; .*"]),
        (["forward=[-1]"], [r"forward = \[-1\]: .*"]),
        (["hydra.job.chdir=0x10"], [r"hydra\.job\.chdir = 0x10: expected true or false"]),
        (["hydra.verbose=0", "hydra.job.name=x"], [r"hydra\.verbose = 0: Hydra cannot start with it .*"]),
        (["optimizer._target_=nan"], [r"optimizer\._target_ = nan: expected the name of a class or function"]),
        (["data.batch_size=99999999999999999999"], [r"data\.batch_size = 9+: expected a whole number below .*"]),
        (["model=simple_net", "data=synthetic", "data.batch_size=1000000000"], [r"data\.batch_size = .* GiB.*"]),
        (["optimizer=sgd", "optimizer.momentum=1.5"], [r"optimizer\.momentum = 1\.5: expected a number from 0 to .*"]),
        (["optimizer.lr=inf"], [r"optimizer\.lr = inf: expected a number of at most 1000; .*"]),
        (["trainer.accumulate_grad_batches=10000000"], [r"trainer\.accumulate_grad_batches = 10000000: .* at most .*"]),
        (["model=mini_transformer", "data=synthetic", "model.dim=0"], [r"model\.dim = 0: expected a whole .* 1; .*"]),
        (["model=decision_pipeline", "model.limit=nan"], [r"model\.limit = nan: expected a finite number .*"]),
        ([f"data.batch_size={'9' * 5000}"], [r"data\.batch_size=9{5000}: cannot be read; .*"]),
        (["model._target_=a\nb"], [r"model\._target_=a b: cannot be read; .*"]),
        (["model._target_='a\tb\x1b[31m'"], [r"model\._target_ = a b: ModuleNotFoundError: .*"]),
        (["+logger.wandb.settings.api_key=abc"], [r"logger\.wandb\.settings\.api_key: names a secret; do not type .*"]),
        (["-m", "seed=0,1", "hydra.launcher.timeout_s=nan"], [r"hydra\.launcher\.timeout_s = nan: expected .*"]),
        (["logger.wandb.project=../../x"], [r"logger\.wandb = .*: UsageError: .*project.*"]),
        (["objective._target_=null"], [r"objective\._target_ = null: expected the name of a class or function"]),
        (["optimizer.groups=2"], [r"optimizer\.groups = 2: expected settings, the class or .*"]),
        (["+checkpoint=null", "++checkpoint=${seed}"], [r"checkpoint = null: is a setting already; .*"]),
        (["-m", "seed=0,1", "hydra.launcher.repeats=0"], [r"hydra\.launcher\.repeats = 0: expected .*"]),
    ],
    ids=lambda value: " ".join(value)[:80] if isinstance(value, list) and "\\" not in value[0] else "",
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_status_2(words, lines, train, tmp_path):
    (tmp_path / "corrupt.ckpt").write_bytes(b"\x80\x02 this is no checkpoint")
    done = train(*words)
    assert done.returncode == 2, done.stderr
    said = done.stderr.strip().splitlines()
    assert len(said) == len(lines), done.stderr
    for line, expected in zip(said, lines, strict=True):
        assert re.fullmatch(expected, line), line
    assert "Traceback" not in done.stdout + done.stderr


def test_the_config_is_printed_resolved(train):
    done = train("--cfg", "job", "--resolve")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  model: simple_cnn" in done.stdout


def test_a_graph_mode_on_a_cpu_runs_and_says_that_it_took_no_effect(train, tmp_path, needs_compiler):
    words = "model=simple_net", "data=synthetic", "data.num_batches=2", "trainer.max_epochs=1", "logger=none"
    done = train(*words, "compile.mode=reduce-overhead", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    assert "CUDA graphs did not take effect" in done.stdout
    from trainkit.results.files import read_row

    row = read_row(tmp_path / "run")
    assert (row.status, row.compile_mode, row.effective_mode) == ("ok", "reduce-overhead", "default")
    assert "CUDA graphs" in row.effective_mode_reason


def test_a_compile_cache_that_torch_cannot_make_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "cache"
    command = [sys.executable, str(ROOT / "train.py"), "model=simple_net", "data=synthetic", "compile.mode=eager"]
    env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(folder)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    problem = "torch cannot make it (Not a directory); choose another"
    assert done.stderr == f"TORCHINDUCTOR_CACHE_DIR = {folder}: {problem}\n"
    assert done.returncode == 2


def test_garbage_is_looked_for_again_after_an_import_that_fails():
    with pytest.raises(ImportError), cli.importing():
        importlib.import_module("trainkit.nothing")
    gc.unfreeze()  # for the tests after this one
    assert gc.isenabled()


def test_a_run_in_eager_mode_does_not_wait_for_the_compiler(tmp_path):
    """To import inductor takes more than a second, of the six of a short job."""
    words = "model=simple_net", "data=synthetic", "data.num_batches=2", "trainer.max_epochs=1", "logger=none"
    command = [sys.executable, str(ROOT / "train.py"), *words, "compile.mode=eager", "trainer.accelerator=cpu"]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert "torch" in imported
    assert not [name for name in imported if name.startswith("torch._inductor.compile")]


def test_a_network_that_fails_on_the_data_says_where(train, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, **sizes):\n"
        "        super().__init__()\n"
        "        self.fc = torch.nn.Linear(5, 10)\n"
        "    def forward(self, images):\n"
        "        return self.fc(images.flatten(1))\n"
    )
    done = train("model=own", "model._target_=mine.Net", "+model.num_classes=10")
    assert done.returncode == 2
    expected = r"model = mine\.Net: does not fit data = digits: RuntimeError: mat1 and mat2 .* \(at mine\.py:7\), .*\n"
    assert re.fullmatch(expected, done.stderr)


def test_hydra_full_error_shows_the_tracebacks_of_mistakes_and_of_networks(train, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert train("seed=a").stderr.startswith("seed = a: expected a whole number\nTraceback (most recent call last):\n")
    assert '\n  File "' in train("model._target_=tests.networks.Raises", "compile.mode=eager").stderr


SHORT = "model=simple_net", "data=synthetic", "data.num_batches=2", "logger=none", "compile.mode=eager"


def test_a_run_goes_on_when_the_reader_of_its_output_is_gone(tmp_path):
    command = [sys.executable, ROOT / "train.py", *SHORT, "trainer.max_epochs=3", "hydra.run.dir=run"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().endswith("importing torch and lightning\n")
        process.stdout.close()  # as `| head -1` does
        assert process.wait(timeout=300) == 0, process.stderr.read()
        assert process.stderr.read() == ""
    from trainkit.results.files import read_row

    row = read_row(tmp_path / "run")
    assert (row.status, row.num_epochs) == ("ok", 3)


def test_a_second_run_in_a_run_directory_is_refused_and_a_later_one_is_not(train, tmp_path):
    command = [sys.executable, ROOT / "train.py", *SHORT, "trainer.max_epochs=100000", "hydra.run.dir=run"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        wait_until((tmp_path / "run" / "epochs.jsonl").exists, process)
        second = train(*SHORT, "hydra.run.dir=run")
        process.kill()
    assert second.returncode == 2
    assert re.fullmatch(r"hydra\.run\.dir = \S+run: another run is in it; wait for it, or .*\n", second.stderr)
    assert train(*SHORT, "trainer.max_epochs=1", "hydra.run.dir=run").returncode == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("module", ["hydra", "lightning"])
def test_a_signal_in_the_imports_ends_the_process_without_a_traceback(number, status, module, tmp_path):
    """A module of this name, in the working directory, that waits in its import."""
    (tmp_path / f"{module}.py").write_text("import pathlib, time\npathlib.Path('there').touch()\ntime.sleep(300)\n")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    command = [sys.executable, ROOT / "train.py", *SHORT, "hydra.run.dir=run"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE
    ) as process:
        wait_until((tmp_path / "there").exists, process)
        process.send_signal(number)
        assert (process.wait(timeout=300), process.stderr.read()) == (status, b"")


def test_a_report_ends_quietly_when_its_reader_is_gone(tmp_path):
    rows = [str(ROOT / "measurements" / "crossing_point.jsonl"), "--into", str(tmp_path)]
    command = [sys.executable, ROOT / "scripts" / "report.py", *rows]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert (process.wait(timeout=300), process.stderr.read()) == (0, "")


def test_a_row_that_cannot_be_written_ends_in_a_line_with_its_path(tmp_path):
    def limit_files():  # as a full disk or a quota does
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    command = [sys.executable, ROOT / "train.py", *SHORT, "trainer.accelerator=cpu", "hydra.run.dir=run"]
    words = "hydra.output_subdir=null", "hydra/job_logging=disabled"
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, *words], cwd=tmp_path, env=env, preexec_fn=limit_files, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert re.fullmatch(r"\S*run/row\.json: File too large", done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


def test_a_network_that_cannot_be_copied_says_so(train, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import threading\n"
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, **sizes):\n"
        "        super().__init__()\n"
        "        self.lock = threading.Lock()\n"
    )
    done = train("model._target_=mine.Net")
    assert done.returncode == 2
    assert re.fullmatch(r"model = mine\.Net: cannot be copied: TypeError: .*lock.*; keep locks, .*\n", done.stderr)


@pytest.mark.parametrize(
    "script", ["train.py", *(f"scripts/{n}.py" for n in ("bench", "diagnose", "report", "studies"))]
)
def test_a_script_starts_anew_in_any_folder(script, tmp_path):
    done = subprocess.run([sys.executable, ROOT / script, "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
