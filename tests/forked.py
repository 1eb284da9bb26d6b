"""`python SCRIPT words...` in a process forked from one with all imports, which are most of a short run."""

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from trainkit import cli
from trainkit.sweep.torchrun import NVML_CHECK

ROOT = Path(__file__).parent.parent
IMPORTED = (
    "trainkit.training.run",
    "trainkit.inference.run",
    "trainkit.diagnosis.diagnose",
    "trainkit.report.page",
    "trainkit.report.studies",
    "sklearn.datasets",
)
TIMEOUT_S = 300


def python(
    script: Path, *words: str | Path, cwd: Path, path: str = "", ranks: int = 1, max_restarts: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run it to its end. `path` is where it finds modules beside those that the tests find. More than one of `ranks`
    are forked by torchrun's agent, up to `max_restarts` times again."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    argv = [str(script), *map(str, words)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    if path:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), path]))
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("stdout", "stderr")]
        job = {"argv": argv, "cwd": str(cwd), "env": env, "said": list(map(str, said))}
        job |= {"ranks": ranks, "max_restarts": max_restarts}
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], TIMEOUT_S)[0]:
            _end(server)
            raise subprocess.TimeoutExpired(argv, TIMEOUT_S, *(file.read_bytes() for file in said))
        answer = server.stdout.readline()
        if not answer:
            _end(server)
            raise RuntimeError(f"what forks the tests' runs has ended with exit status {server.returncode}")
        return subprocess.CompletedProcess(argv, int(answer), *(file.read_text(encoding="utf-8") for file in said))


def twice(program: str, folder: Path) -> list[str]:
    """What two processes print that run the program in the folder; `together()` waits in each for the other."""
    script = folder / "program.py"
    script.write_text(f"from {__name__} import together\n{program}")
    done = python(script, cwd=folder, ranks=2)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def together() -> None:
    Path(f"ready{os.environ['RANK']}").touch()
    while not (Path("ready0").exists() and Path("ready1").exists()):
        time.sleep(0.001)


@cache
def _server() -> subprocess.Popen[str]:
    begin = f"import sys; sys.path[0] = {str(ROOT)!r}; from {__name__} import serve; serve()"
    server = subprocess.Popen(
        [sys.executable, "-c", begin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", NVML_CHECK: "1"}, start_new_session=True,
    )  # fmt: skip
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    """End it, and with it the job that it runs."""
    _server.cache_clear()
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def serve() -> None:
    """The server's side, until nobody asks any more."""
    with cli.importing():
        for name in IMPORTED:
            importlib.import_module(name)
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            _run(**json.loads(line))
            return
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(argv: list[str], cwd: str, env: dict[str, str], said: list[str], ranks: int, max_restarts: int) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for descriptor, path in enumerate([os.devnull, *said]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    own = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.path[:] = [str(Path(argv[0]).parent), *own, *sys.path[1:]]
    sys.argv = argv
    if ranks == 1:
        _script()
    else:
        config = LaunchConfig(
            1, 1, ranks, run_id=str(os.getpid()), rdzv_backend="c10d", rdzv_endpoint="localhost:0",
            max_restarts=max_restarts, start_method="fork",
        )  # fmt: skip
        elastic_launch(config, _script)()


def _script() -> None:
    runpy.run_path(sys.argv[0], run_name="__main__")
