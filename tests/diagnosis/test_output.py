"""The output of a network is suppressed, and the findings stay the same."""

import logging
import sys
from contextlib import nullcontext
from dataclasses import replace

from tests import defects
from trainkit.diagnosis import output, trial
from trainkit.diagnosis.diagnose import examine


def without_times(diagnosis):
    return replace(diagnosis, phases=[replace(phase, compile_s=None) for phase in diagnosis.phases])


def test_output_is_suppressed_and_the_findings_stay(subject_of, capsys, caplog, monkeypatch):
    subject = subject_of("Talks")
    own = logging.StreamHandler(sys.stderr)  # as a script sets it up where it begins
    monkeypatch.setattr(defects.logger, "handlers", [own])
    caplog.set_level("INFO", "trainkit")
    output._log_suppression.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(trial, "suppressed_output", nullcontext)
        with_output = examine(subject)
    loud = capsys.readouterr()
    assert min(loud.out.count("loudly"), caplog.messages.count("loudly")) >= 20 < loud.err.count("loudly")
    caplog.clear()
    assert without_times(examine(subject)) == without_times(with_output)
    assert len(with_output.findings) == 4
    assert capsys.readouterr() == ("", "")
    assert "loudly" not in caplog.messages
    assert caplog.messages.count("the network's prints, warnings and log records are suppressed") == 1
