"""The words of `trainkit advise`, and what becomes of them."""

import sys

import pytest

from trainkit.commands import advise, bench, train
from trainkit.config.errors import ConfigError


@pytest.mark.parametrize(("text", "minutes"), [("20min", 20), ("20", 20), ("90s", 1.5), ("1.5h", 90)])
def test_a_budget_is_a_time(text: str, minutes: float):
    assert advise.budget_min(text) == minutes


@pytest.mark.parametrize("text", ["", "soon", "0min", "-3", "20 days"])
def test_another_budget_is_refused(text: str):
    with pytest.raises(ConfigError, match=r"^--budget = .*: expected a time above 0; try 20min"):
        advise.budget_min(text)


@pytest.mark.parametrize(("option", "edge"), [([], train), (["--forward"], bench)])
def test_the_command_is_a_sweep_of_training_or_of_calls(option, edge, monkeypatch: pytest.MonkeyPatch):
    typed = ["model=gpt2", "amp=off,bf16", "--budget", "90s", "--steps", "50000", "--memory-gib", "40", *option]
    monkeypatch.setattr(sys, "argv", ["advise.py", *typed])
    monkeypatch.setattr(edge, "main", lambda: 7)
    assert advise.main() == 7
    assert sys.argv == [
        edge.__file__, "-m", "hydra/sweeper=race", "hydra.sweeper.budget_min=1.5", "hydra.sweeper.steps=50000",
        "hydra.sweeper.memory_gib=40", "model=gpt2", "amp=off,bf16",
    ]  # fmt: skip
