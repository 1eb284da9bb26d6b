"""The manual: `python train.py --help` and docs/reference/settings.md."""

import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

from trainkit.config.manual import settings_help, settings_page
from trainkit.config.schema import RunConfig

ROOT = Path(__file__).parents[2]


def test_every_setting_is_in_the_manual():
    done = subprocess.run([sys.executable, ROOT / "train.py", "--help"], capture_output=True, text=True)
    for group in fields(RunConfig):
        if group.name in ("job", "repeat", "parallel_jobs", "study", "tuned"):
            continue  # set by Hydra, by the launcher and by an experiment
        assert group.name in done.stdout
        if is_dataclass(group.type):
            for setting in fields(group.type):
                assert f"{group.name}.{setting.name}" in done.stdout
    for option in ("timeout_s", "nproc_per_node", "repeats", "parallel"):
        assert f"hydra.launcher.{option}" in done.stdout
    for option in ("budget_min", "steps", "memory_gib", "minimize", "slower_frac", "job_steps", "save_as", "into"):
        assert f"hydra.sweeper.{option}" in done.stdout
    assert "Powered by Hydra" not in done.stdout


def test_the_manual_waits_for_nothing_that_it_does_not_need():
    """It takes a fraction of a second; torch and scipy take several."""
    command = [sys.executable, "-X", "importtime", str(ROOT / "train.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "hydra" in imported
    assert imported.isdisjoint({"torch", "lightning", "scipy", "numpy"})


def test_every_line_of_the_manual_fits():
    assert max(len(line) for line in settings_help().splitlines()) <= 120


def test_the_page_of_settings_is_the_committed_one():
    committed = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert settings_page() == committed, "run python scripts/reference.py"
