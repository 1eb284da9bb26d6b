"""The command `trainkit`: the commands of the scripts, under one name."""

import sys

import pytest

import trainkit
from trainkit.__main__ import COMMANDS, main


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ([], 0, "usage: trainkit COMMAND"),
        (["--help"], 0, "  diagnose  the lines that keep"),
        (["--version"], 0, trainkit.__version__),
        (["trian"], 2, "trainkit trian: expected one of train, bench, diagnose, report\n"),
        (["report", "nowhere"], 2, "report: no rows in or below nowhere\n"),
    ],
)
def test_the_command_says_what_it_can_do(words, status, text, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["trainkit", *words])
    assert main() == status
    output = capsys.readouterr()
    assert text in output.out + output.err


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["trainkit", name, "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (0, None)
    assert capsys.readouterr().out
