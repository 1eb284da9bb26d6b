"""The command `trainkit`: the commands of the scripts, under one name."""

import logging
import signal
import sys

import pytest

import trainkit
from trainkit.__main__ import COMMANDS, main


@pytest.fixture(autouse=True)
def signals_handled_as_before():
    """`main` leaves them ignored, for the last steps of its process."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ([], 0, "usage: trainkit COMMAND"),
        (["--help"], 0, "  diagnose  the lines that keep"),
        (["--version"], 0, trainkit.__version__),
        (["trian"], 2, "trainkit trian: expected one of train, bench, diagnose, report, advise\n"),
        (["report", "nowhere"], 2, "report: no rows in or below nowhere\n"),
    ],
)
def test_the_command_says_what_it_can_do(words, status, text, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["trainkit", *words])
    assert main() == status
    output = capsys.readouterr()
    assert text in output.out + output.err


@pytest.fixture
def loggers_as_before():
    """Hydra's help disables all loggers of the process."""
    loggers = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    disabled = [logger.disabled for logger in loggers]
    yield
    for logger, was_disabled in zip(loggers, disabled, strict=True):
        logger.disabled = was_disabled


@pytest.mark.usefixtures("loggers_as_before")
@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["trainkit", name, "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (0, None)
    assert capsys.readouterr().out
