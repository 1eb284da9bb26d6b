"""Memory reads back an allocation."""

import pytest
import torch

from trainkit.metrics import memory


def test_resident_memory_reads_back_an_allocation():
    first = torch.ones(1000 * 2**20, dtype=torch.uint8)  # lifts the peak over what earlier tests have left
    before = memory.peak_resident_bytes()
    second = torch.ones(300 * 2**20, dtype=torch.uint8)
    assert memory.peak_resident_bytes() - before == pytest.approx(second.numel(), rel=0.05)
    del first
    assert memory.peak_resident_bytes() - before == pytest.approx(second.numel(), rel=0.05)


def test_the_memory_in_use_is_all_that_no_process_could_get(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 300 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    assert memory.used_frac(torch.device("cpu")) == pytest.approx(0.7)
