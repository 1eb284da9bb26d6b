"""The commands of the README and of the guides compose; `make docs-test` runs them, with few batches."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from tests.conftest import ROOT
from tests.docs.commands import PAGES, Command, commands
from trainkit.config.complaints import compose_typed
from trainkit.config.composition import CONF, FORWARD, hydra_apart
from trainkit.config.validation import check
from trainkit.training.model import build_data

FOLDER = Path(__file__).parent / "folder"  # the networks and data that the guides call theirs
NOT_RUN = {  # by the beginning of a command, the reason
    "make test": "runs this",
    "make setup": "ran before this",
    "make studies": "takes hours on a GPU, and minutes on a CPU",
    "pip install": "would change the environment of the tests",
    "docker": "needs Docker",
    "torchrun --nnodes": "needs several hosts, or agents in the background",
    "trainkit train -m hydra/sweeper=optuna": "needs hydra-optuna-sweeper",
    "python benchmarks/python_versions.py": "needs several versions of Python",
}
WITHOUT_SETTINGS = (" ...", "model=mlp", "interval(")  # left out, of the reader, of Optuna
FEW = {False: "trainer.max_epochs=1 trainer.limit_train_batches=4", True: "forward.num_calls=40"}  # by is_forward


def first_values(overrides: list[str]) -> list[str]:
    """The overrides of a sweep's first job, without those of Hydra."""
    chosen = []
    for override in OverridesParser.create().parse_overrides(overrides):
        words = override.input_line or ""
        if override.is_sweep_override():
            words = f"{words.partition('=')[0]}={next(iter(override.sweep_string_iterator()))}"
        if not words.startswith("hydra"):
            chosen.append(words)
    return chosen


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_settings_of_each_command_exist_and_fit(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for command in commands(page):
        typed = command.overrides
        if typed is None or any(word in command.line for word in WITHOUT_SETTINGS):
            continue
        options = [word for word in typed if "=" not in word or word.startswith("-")]
        words = first_values([word for word in typed if "=" in word and not word.startswith("-")])
        if "--config-dir" in options:
            folder = options[options.index("--config-dir") + 1]
            root = ROOT if (ROOT / folder).exists() else FOLDER
            words.insert(0, f"--config-dir={root / folder}")
        with hydra_apart():
            config = compose_typed(words, CONF, name=FORWARD if command.is_forward else "config")
        check(config)
        if command.needs and "data=synthetic" in words:  # `make docs-test` runs the others
            build_data(config)


def test_the_network_of_the_readme_is_the_one_that_its_command_trains():
    (shown,) = re.findall(r"(?ms)^```python\n.*?(^class .*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown in (FOLDER / "mine.py").read_text(encoding="utf-8")


def reason_not_to_run(command: Command) -> str | None:
    for beginning, reason in NOT_RUN.items():
        if command.line.startswith(beginning):
            return reason
    return None


def shortened(line: str) -> str:
    """The command with two repeats, an experiment's sweep with one, one deadline, and a race with one minute."""
    line = re.sub(r"(repeats=)\d+", r"\g<1>2", line)
    line = re.sub(r"(deadline_ms=\d+),[\d,]+", r"\g<1>", line)
    if " -m " in line and "experiment=" in line and "repeats=" not in line:
        line += " hydra.launcher.repeats=1"
    return re.sub(r"(--budget |budget_min=)\d+", r"\g<1>1", line)


def few_batches(command: Command) -> list[str]:
    """The settings that make a command short, without those that it names itself."""
    if command.is_forward and "experiment=studies/" in command.line:  # its calls fill windows
        return []
    settings = FEW[command.is_forward].split()
    if "data.order=list" in command.line:  # each size has a share of the epoch
        settings = ["trainer.max_epochs=1", "data.num_batches=6"]
    return [setting for setting in settings if setting.partition("=")[0] not in command.line]


@pytest.mark.docs
@pytest.mark.parametrize("needs", [None, pytest.param("gpu", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page, needs, tmp_path):
    """In the order of the page, in a copy of the clone: what one command leaves is there for the next one only."""
    shutil.copytree(ROOT, tmp_path, ignore=shutil.ignore_patterns(".*", "runs", "site"), dirs_exist_ok=True)
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    env = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    folders = [str(tmp_path), str(ROOT / "tests" / "outside"), os.environ.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    (tmp_path / "book.txt").write_text((ROOT / "CHANGELOG.md").read_text(encoding="utf-8") * 20, encoding="utf-8")
    (tmp_path / "prices.csv").write_text("area,rooms,price\n" + "90,3,300\n" * 100, encoding="utf-8")
    for command in commands(page):
        if command.needs != needs or reason_not_to_run(command):
            continue
        line = shortened(command.line)
        if command.overrides is not None and "diagnose" not in line:
            line = " ".join([line, *few_batches(command)])
        started = time.monotonic()
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True)
        print(f"{time.monotonic() - started:.0f} s: {line}", flush=True)
        # 1: something got slower or larger, on a busy machine by chance.
        allowed = (0, 1) if "--against" in line else (0,)
        assert done.returncode in allowed, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
