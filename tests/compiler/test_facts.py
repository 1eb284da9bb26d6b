"""The facts of a run's compiles, the mode that took effect, and where the compile time went."""

import pytest

from trainkit.results.row import COMPILE_KINDS
from trainkit.training.run import run

TRAINING = ("compile.backend=aot_eager", "trainer.max_epochs=1", "trainer.limit_val_batches=0")


def test_a_plain_network_has_no_break_and_its_recompiles_are_validations_variants(compose):
    row = run(compose("compile.backend=aot_eager", "trainer.max_epochs=2"))
    assert (row.num_graph_breaks, row.graph_breaks, row.num_graphs, row.num_recompiles) == (0, [], 3, 2)
    assert len(row.graph_sizes) == 3
    assert all(size.num_operations > 1 < size.num_inputs for size in row.graph_sizes)
    assert "grad_mode" in row.recompiles[0]
    assert "size mismatch" in row.recompiles[1]


def test_the_parts_of_the_compile_time_add_up(compose, needs_compiler):
    words = "model=simple_net", "data=synthetic", "data.num_batches=2", "trainer.max_epochs=1"
    row = run(compose(*words, "compile.cache=cold", "trainer.limit_val_batches=0"))
    parts = [getattr(row, f"compile_{kind}_s") for kind in COMPILE_KINDS]
    assert sum(parts) == pytest.approx(row.compile_time_s)
    assert row.compile_forward_s > 0
    assert row.compile_startup_s > 0
    assert (row.compile_cudagraph_s, row.compile_recompile_s, row.cache_found) == (0, 0, "cold")


def test_cuda_graphs_without_a_gpu_are_a_mode_that_did_not_take_effect(compose, needs_compiler):
    row = run(compose("compile.mode=reduce-overhead", "trainer.max_epochs=1", "trainer.accelerator=cpu"))
    assert (row.effective_mode, row.num_cudagraphs) == ("default", 0)
    assert "CUDA graphs did not take effect" in row.effective_mode_reason
