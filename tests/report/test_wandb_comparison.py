"""The comparison of a sweep in W&B, offline."""

import json
from dataclasses import replace

import pytest
import wandb

from tests.sweeps import five_modes
from trainkit.analysis.comparison import compare
from trainkit.report.wandb_comparison import publish


@pytest.fixture
def own_service():
    """W&B's process ends with the test: those that are started later would find it by a variable."""
    yield
    wandb.teardown()


def test_the_table_has_the_epoch_times_and_the_dropped_settings_with_their_reasons(own_service, tmp_path):
    rows = [replace(row, epoch_train_time_s=100 + row.repeat) for row in five_modes()]
    publish(compare(rows), "<p>page</p>", "modes", tmp_path, {"project": "trainkit", "offline": True})
    (path,) = tmp_path.glob("wandb/**/comparison_*.table.json")
    table = json.loads(path.read_text())
    lines = {}
    for data in table["data"]:
        line = dict(zip(table["columns"], data, strict=True))
        lines[(line["setting"], line["verdict"].partition(":")[0] == "dropped")] = line
    assert lines["eager", False]["epoch_train_time_s"] == 100.5
    dropped = lines["reduce-overhead", True]
    assert (dropped["runs"], dropped["step_time_ms"], dropped["work"]) == (2, None, "resnet18 on synthetic, batch 64")
    reason = "dropped: requested reduce-overhead, effective default: CUDA graphs need a CUDA device"
    assert dropped["verdict"] == reason
    assert lines["max-autotune", True]["verdict"] == "dropped: timeout: stopped after 600 s"
