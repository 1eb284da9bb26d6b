"""An installed trainkit has its configs and networks, under the same names as a clone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PROGRAM = """
from pathlib import Path
import models  # the user's own
import trainkit
from hydra.utils import get_object
from trainkit.config.composition import compose_config

assert models.MINE
root = Path(trainkit.__file__).parent
config = compose_config(["model=mini_transformer", "data=synthetic", "logger=none"], root / "conf", "run")
network = get_object(config.model["_target_"])
assert Path(__import__(network.__module__, fromlist=["_"]).__file__).is_relative_to(root), network
print(network.__module__, network.__name__, (root / "report" / "templates" / "page.html").exists())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content; its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    sources = folder / "sources"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(sources)], check=True)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(sources)]
    subprocess.run([*pip, *build], check=True, timeout=300)
    (wheel,) = folder.glob("trainkit-*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True, timeout=300
    )
    return folder / "site"


def test_networks_and_configs_are_in_the_wheel_beside_a_package_models_of_the_users(installed, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    env = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["trainkit.models.mini_transformer", "MiniTransformer", "True"]


def test_the_command_trains_sweeps_and_reports_in_an_empty_folder(installed, tmp_path):
    env = os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}

    def trainkit(*words: str) -> str:
        command = [sys.executable, str(installed / "bin" / "trainkit"), *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    words = "compile.mode=eager,default", "compile.backend=aot_eager", "model=simple_net", "trainer.max_epochs=1"
    sweep = trainkit("train", "-m", *words, "logger=none", "trainer.accelerator=cpu", "sweep=modes")
    assert "[2/2] compile.mode=default: ok" in sweep
    assert "eager" in trainkit("report", "runs/sweeps/modes")
    assert (tmp_path / "runs" / "sweeps" / "modes" / "report.html").exists()
