"""What all tests share: the real conf/, a run in a directory of its own, and one compile cache for the session."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import forked

if TYPE_CHECKING:
    from torch import Tensor

ROOT = Path(__file__).parent.parent
CONF = ROOT / "conf"

# The same examples each time, however slow the machine.
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("suite")

# A shell's background job ignores it, and so would all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session", autouse=True)
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One cache of compiled code for all tests and their subprocesses: coldness is the subject of few. One thread for
    each of them: several test workers share the cores."""
    import torch

    torch.set_num_threads(1)
    shared = tmp_path_factory.getbasetemp().parent / "compile-cache"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(shared))


@pytest.fixture(scope="session", autouse=True)
def python_path() -> None:
    """Every subprocess imports the project from here, and all else from where the tests do."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(autouse=True)
def environment_as_before() -> Iterator[None]:
    """No test sees a variable that another has set, or a command that was called in this process."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def compose(tmp_path: Path):
    """(overrides, ...) -> the RunConfig that train.py would run, its run directory below tmp_path."""
    from trainkit.config.composition import compose_config
    from trainkit.config.schema import RunConfig

    def composed(*overrides: str, run_dir: Path = tmp_path / "run") -> RunConfig:
        run_dir.mkdir(exist_ok=True)
        return compose_config(["logger=none", *overrides], CONF, str(run_dir))

    return composed


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """(words, ...) -> `python train.py words...` run to its end in tmp_path, on the CPU, on so many `ranks`."""

    def started(*words: str, ranks: int = 1, max_restarts: int = 0, timeout_s: float = forked.TIMEOUT_S):
        words = (*words, "trainer.accelerator=cpu")
        return forked.python(
            ROOT / "train.py", *words, cwd=tmp_path, ranks=ranks, max_restarts=max_restarts, timeout_s=timeout_s
        )

    return started


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small text with something to learn in it."""
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "ran", "to", "some", "other", "house"]
    lines = [" ".join(words[(i * k) % len(words)] for k in range(3, 14)) + f" {i}." for i in range(400)]
    path = tmp_path_factory.mktemp("text") / "small.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def needs_compiler() -> None:
    if not any(shutil.which(name) for name in ("g++", "clang++")):
        pytest.skip("no C++ compiler: inductor cannot compile for a CPU here")


def parameters(run_dir: Path, name: str = "last") -> dict[str, "Tensor"]:
    """The parameters and buffers in a checkpoint of a run."""
    import torch

    checkpoint = torch.load(run_dir / "checkpoints" / f"{name}.ckpt", weights_only=True)
    return checkpoint["state_dict"]


def same(first: dict[str, "Tensor"], second: dict[str, "Tensor"]) -> bool:
    """Whether two checkpoints have the same names and, to the bit, the same values."""
    import torch

    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def in_cache(folder: Path) -> list[Path]:
    """What data made there, whole or in part: all but locks and what the `datasets` library keeps."""
    return [path for path in folder.iterdir() if path.suffix != ".lock" and path.name != "datasets"]
