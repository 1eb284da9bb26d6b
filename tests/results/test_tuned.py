"""The warning of settings that a race found elsewhere."""

from dataclasses import replace

import pytest

from tests.sweeps import ROW
from trainkit.config.schema import TunedConfig
from trainkit.results.tuned import warn_of_other_machine


@pytest.mark.parametrize("changed", [{"device_name": "AMD EPYC"}, {"torch_version": "2.13.0"}])
def test_another_machine_or_torch_is_one_line(changed: dict, capsys: pytest.CaptureFixture[str]):
    tuned = TunedConfig(device=ROW.device_name, torch=ROW.torch_version)
    warn_of_other_machine(tuned, ROW)
    warn_of_other_machine(None, ROW)
    assert capsys.readouterr().err == ""
    warn_of_other_machine(tuned, replace(ROW, **changed))
    (line,) = capsys.readouterr().err.splitlines()
    assert "found on NVIDIA H100 with torch 2.11.0" in line
    assert next(iter(changed.values())) in line
