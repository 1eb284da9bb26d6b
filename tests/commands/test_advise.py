"""The words of `trainkit advise`, and what becomes of them."""

import sys

import pytest
from hydra._internal.utils import get_args_parser

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


def test_hydra_takes_a_config_directory_beside_overrides(monkeypatch: pytest.MonkeyPatch):
    typed = ["model=gpt2", "--config-dir", "mine", "data=text"]
    monkeypatch.setattr(sys, "argv", ["advise.py", *typed])
    monkeypatch.setattr(train, "main", lambda: 0)
    assert advise.main() == 0
    parsed = get_args_parser().parse_args(sys.argv[1:])
    assert parsed.config_dir == "mine"
    assert parsed.overrides[-2:] == ["model=gpt2", "data=text"]
