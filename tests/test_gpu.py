"""What only a GPU can show. Run on one: pytest -m gpu."""

import os
import subprocess
import sys

import pytest
import torch

from tests.conftest import ROOT
from trainkit.meters import peak_memory, reset_peaks
from trainkit.run import run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
MIB = 2**20
ON_GPU = ("trainer.accelerator=gpu", "model=resnet18", "data=synthetic", "amp=bf16", "data.num_batches=20")


def test_a_graphs_pool_counts_as_allocated_and_a_plain_tensor_counts_once():
    device = torch.device("cuda:0")
    held = torch.ones(64 * MIB, dtype=torch.uint8, device=device)
    graph, out = torch.cuda.CUDAGraph(), torch.zeros(1, device=device)
    with torch.cuda.graph(graph):
        inside = torch.ones(256 * MIB, dtype=torch.uint8, device=device)
        out += inside[:1]
        del inside
    reset_peaks(device)
    graph.replay()
    torch.cuda.synchronize()
    peak = peak_memory(device, captured=False)
    plain = torch.cuda.max_memory_allocated(device)
    assert plain < 80 * MIB  # what torch says: the graph's memory is not in it
    assert peak.allocated == pytest.approx(plain + 256 * MIB, rel=0.03)
    assert peak.allocated <= peak.reserved <= peak.device
    del held, graph


def test_modes_take_effect_and_their_memory_compares(compose, tmp_path):
    rows = []
    for mode in ("eager", "default", "reduce-overhead"):
        row = run(compose(*ON_GPU, f"compile.mode={mode}", "trainer.max_epochs=3", run_dir=tmp_path / mode))
        assert (row.status, row.effective_mode, row.accelerator) == ("ok", mode, "gpu"), row.effective_mode_reason
        assert (row.num_cudagraphs > 0) == (mode == "reduce-overhead")
        assert 0 < row.peak_allocated_bytes <= row.peak_reserved_bytes <= row.peak_device_bytes
        rows.append(row)
    peaks = [row.peak_allocated_bytes for row in rows]
    assert max(peaks) < 2 * min(peaks)


def test_fp16_trains_with_its_scaler(compose):
    row = run(compose("trainer.accelerator=gpu", "amp=fp16", "compile.mode=default", "trainer.max_epochs=4"))
    assert (row.status, row.precision, row.val_accuracy > 0.9) == ("ok", "16-mixed", True)


def test_a_batch_too_large_is_an_oom_row(compose, capsys):
    row = run(compose(*ON_GPU, "compile.mode=eager", "data.batch_size=200000", "data.num_distinct=1", "logger=none"))
    assert row.status == "oom"


def test_memory_is_what_nvidia_smi_shows_for_the_process(compose, tmp_path):
    """In a process of its own for each mode: the allocator of this one holds what other tests have left."""
    for mode in ("eager", "reduce-overhead"):
        (tmp_path / mode).mkdir()
        script = (
            "import os, subprocess, sys\n"
            "from pathlib import Path\n"
            "from trainkit import cli\n"
            "from trainkit.run import run\n"
            "def shown(record):\n"  # at an epoch's end: the Trainer gives the memory back when the fit is over
            "    query = ['nvidia-smi', '--query-compute-apps=pid,used_memory', '--format=csv,noheader,nounits']\n"
            "    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()\n"
            "    used = {int(pid): int(mib) for pid, mib in (line.split(',') for line in lines)}\n"
            "    print('RESULT', record.peak_device_bytes / 2**20, used[os.getpid()])\n"
            "run(cli.composed(sys.argv[2:], Path('conf'), sys.argv[1]), on_epoch=shown)\n"
        )
        words = [*ON_GPU, "data.batch_size=256", "data.image_size=64", "logger=none", "trainer.max_epochs=3"]
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / mode), *words, f"compile.mode={mode}"],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
            cwd=ROOT,
        )
        assert "RESULT" in done.stdout, done.stderr
        measured, shown = map(float, done.stdout.split("RESULT")[-1].split()[:2])  # of the last epoch
        print(f"{mode}: measured {measured:.0f} MiB, nvidia-smi {shown:.0f} MiB")
        assert measured == pytest.approx(shown, rel=0.03)
