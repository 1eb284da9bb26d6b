"""The facts of a run's compiles, the mode that took effect, and where the compile time went."""

import pytest

from trainkit.results.row import COMPILE_KINDS
from trainkit.training.run import run

TRAINING = ("compile.backend=aot_eager", "trainer.max_epochs=1", "trainer.limit_val_batches=0")


def test_a_plain_network_has_no_break_and_its_recompile_is_validations_graph(compose):
    row = run(compose("compile.backend=aot_eager", "trainer.max_epochs=2"))
    assert (row.num_graph_breaks, row.graph_breaks, row.num_graphs, row.num_recompiles) == (0, [], 2, 1)
    assert len(row.graph_sizes) == 2
    assert all(size.num_operations > 1 < size.num_inputs for size in row.graph_sizes)
    assert "grad_mode" in row.recompiles[0]


def test_the_rest_of_a_validation_is_in_its_figures(compose):
    """359 digits are five batches of 64 and one of 39."""
    words = "trainer.max_epochs=2", "compile.backend=aot_eager"
    row, eager = run(compose(*words)), run(compose(*words, "compile.mode=eager"))
    assert (row.num_val_targets, row.num_eager_steps) == (359, 0)
    assert (row.val_accuracy, row.val_loss) == pytest.approx((eager.val_accuracy, eager.val_loss), rel=1e-4)


def test_the_parts_of_the_compile_time_add_up(compose, needs_compiler):
    words = "model=simple_net", "data=synthetic", "data.num_batches=2", "trainer.max_epochs=1"
    row = run(compose(*words, "compile.cache=cold", "trainer.limit_val_batches=0"))
    parts = [getattr(row, f"compile_{kind}_s") for kind in COMPILE_KINDS]
    assert sum(parts) == pytest.approx(row.compile_time_s)
    assert row.compile_forward_s > 0
    assert 0 < row.before_inductor_s < row.compile_time_s
    assert row.compile_startup_s > 0
    assert (row.compile_cudagraph_s, row.compile_recompile_s, row.cache_found) == (0, 0, "cold")


def test_cuda_graphs_without_a_gpu_are_a_mode_that_did_not_take_effect(compose, needs_compiler):
    row = run(compose("compile.mode=reduce-overhead", "trainer.max_epochs=1", "trainer.accelerator=cpu"))
    assert (row.effective_mode, row.num_cudagraphs) == ("default", 0)
    assert "CUDA graphs did not take effect" in row.effective_mode_reason
