"""compile.max_recompiles: how many variants are compiled, and how a run goes on after that."""

import pytest
import torch

from tests.conftest import parameters
from trainkit.data.shapes import SizeSchedule
from trainkit.results.files import read_epochs
from trainkit.training.run import run

IMAGES = ("model=simple_net", "model.width=8", "data=synthetic", "data.image_size=4", "trainer.limit_val_batches=0")
STATIC = ("compile.backend=eager", "compile.dynamic=false", "trainer.max_epochs=1")
TOKENS = (
    "model=mini_transformer", "model.dim=8", "model.depth=1", "model.num_heads=2", "data=synthetic",
    "data.batch_size=4", "data.seq_len=32", "trainer.limit_val_batches=0",
)  # fmt: skip


def test_a_thousand_shapes_stay_within_the_budget(compose, tmp_path):
    words = ("data.batch_sizes=[2,1001]", "data.order=random", "data.num_batches=250", "data.num_distinct=1")
    row = run(compose(*IMAGES, *words, *STATIC, "compile.max_recompiles=8", "trainer.max_epochs=4"))
    assert (row.status, row.num_steps, row.num_graphs, row.num_recompiles) == ("ok", 1000, 9, 8)
    assert row.num_compiled_steps + row.num_eager_steps == 1000
    seen = {tuple(map(tuple, shapes)) for shapes in row.recompile_shapes}
    assert len(seen) == 8
    drawn = [
        n for epoch in range(4) for n in SizeSchedule("batch_size", [2, 1001], "random", 0).epoch_sizes(epoch, 250)
    ]
    compiled = {drawn[0], *(shapes[1][0] for shapes in row.recompile_shapes)}
    assert row.num_compiled_steps == sum(size in compiled for size in drawn)
    assert (row.recompile_limit_hit, row.effective_mode) == (True, "mixed")
    assert row.effective_mode_reason.startswith("compile.max_recompiles (8) reached: ")
    peaks = [epoch.peak_device_bytes for epoch in read_epochs(tmp_path / "run")]
    assert peaks[3] - peaks[1] < 2 * 2**20


def test_the_budget_is_above_torchs_own_limit_where_it_is_larger(compose):
    words = (*IMAGES, "data.batch_sizes=[2,3,4,5,6,7,8,9,10,11,12,13,14]", "data.num_batches=26", *STATIC)
    row = run(compose(*words, "compile.max_recompiles=11"))
    assert (row.num_graphs, row.num_recompiles, row.num_eager_steps) == (12, 11, 2)


def test_without_a_budget_torchs_own_limit_is_said_and_the_steps_are_counted(compose):
    words = (*IMAGES, "data.batch_sizes=[2,3,4,5,6,7,8,9,10,11]", "data.num_batches=20", *STATIC)
    row = run(compose(*words))
    assert (row.num_graphs, row.num_eager_steps, row.effective_mode) == (8, 4, "mixed")
    assert "recompile limit (8)" in row.effective_mode_reason


def test_the_budget_fails_where_it_is_asked_to(compose, capsys):
    words = (*IMAGES, "data.batch_sizes=[2,3,4,5]", "data.num_batches=8", *STATIC, "compile.on_recompile_limit=raise")
    row = run(compose(*words, "compile.max_recompiles=2"))
    assert row.status == "compile_error"
    assert row.error == "RecompileLimitError: compile.max_recompiles = 2: [5, 3, 4, 4] and [5] needed one more"
    assert (row.num_steps, row.num_recompiles, row.num_graphs) == (3, 2, 3)  # the one more was not compiled
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("compile.max_recompiles = 2: [5, 3, 4, 4] and [5] needed one more; raise compile.max_recomp")


@pytest.mark.parametrize(
    "words",
    [
        ("compile.fullgraph=true",),
        ("compile.scope=blocks", "trainer.activation_checkpointing=true", "model.depth=3"),
        ("trainer.accumulate_grad_batches=2",),
    ],
    ids=["fullgraph", "checkpointed blocks", "accumulation"],
)
def test_over_the_budget_it_trains_as_eager_does(compose, tmp_path, words):
    words = (*TOKENS, "data.seq_lens=[6,10,14,32]", "data.num_batches=8", *STATIC, *words)
    row = run(compose(*words, "compile.max_recompiles=2", run_dir=tmp_path / "budget"))
    assert row.status == "ok"
    assert row.num_recompiles == 2
    assert row.num_eager_steps > 0
    eager = run(compose(*words, "compile.mode=eager", run_dir=tmp_path / "eager"))
    assert (eager.num_eager_steps, eager.num_compiled_steps) == (eager.num_steps, 0)
    for name, tensor in parameters(tmp_path / "budget").items():
        torch.testing.assert_close(tensor, parameters(tmp_path / "eager")[name])


def test_after_a_budget_the_next_run_of_the_process_compiles_again(compose, tmp_path):
    words = (*IMAGES, "data.batch_sizes=[2,3]", "data.num_batches=4", *STATIC)
    rows = [run(compose(*words, "compile.max_recompiles=0", run_dir=tmp_path / name)) for name in ("a", "b")]
    assert [row.num_graphs for row in rows] == [1, 1]
    assert run(compose(*words, "check=true", run_dir=tmp_path / "c")).num_graphs == 2
