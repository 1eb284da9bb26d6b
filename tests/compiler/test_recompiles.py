"""Every recompile is counted, with torch's reason and the batch that caused it."""

import pytest

from tests.networks import network
from trainkit.report import summary
from trainkit.results.files import read_row
from trainkit.training.run import run

IMAGES = ("model=simple_net", "model.width=8", "data=synthetic", "data.image_size=4", "trainer.limit_val_batches=0")
STATIC = ("compile.backend=eager", "compile.dynamic=false", "trainer.max_epochs=1")
TOKENS = (
    "model=mini_transformer", "model.dim=8", "model.depth=1", "model.num_heads=2", "data=synthetic",
    "data.batch_size=4", "data.seq_len=32", "trainer.limit_val_batches=0",
)  # fmt: skip
TRAINING = ("compile.backend=aot_eager", "trainer.max_epochs=1", "trainer.limit_val_batches=0")


@pytest.mark.parametrize("num_steps", [1, 2, 4, 8])
def test_a_counter_attribute_recompiles_once_a_step_and_says_why(compose, num_steps):
    row = run(compose(*TRAINING, network("Counts"), f"trainer.limit_train_batches={num_steps}"))
    assert (row.num_graphs, row.num_recompiles, row.num_compiling_steps) == (num_steps, num_steps - 1, num_steps)
    assert all(f".calls == {call}" in cause for call, cause in enumerate(row.recompiles))
    assert (row.recompile_limit_hit, row.effective_mode) == (False, "default")
    assert (row.compile_recompile_s > 0) == (num_steps > 1)


def test_a_recompile_names_the_users_file_as_it_is_from_where_the_run_was_started(compose, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from tests.networks import Plain\n"
        "class Counts(Plain):\n"
        "    calls = 0\n"
        "    def forward(self, images):\n"
        "        self.calls += 1\n"
        "        return super().forward(images) * self.calls\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    row = run(compose(*TRAINING, "model._target_=mine.Counts", "trainer.limit_train_batches=2"))
    assert "  # mine.py:" in row.recompiles[0]
    assert str(tmp_path)[2:] not in row.recompiles[0]


def test_the_recompile_limit_is_said(compose):
    row = run(compose(*TRAINING, network("Counts"), "trainer.limit_train_batches=10"))
    assert (row.num_graphs, row.recompile_limit_hit, row.effective_mode) == (8, True, "mixed")
    assert "recompile limit (8)" in row.effective_mode_reason


def test_each_recompile_has_its_shape_and_its_seconds(compose, tmp_path, capsys):
    row = run(compose(*TOKENS, "data.seq_lens=[6,10,14]", "data.num_batches=6", *STATIC))
    assert row.recompile_shapes == [[[4, 10], [4]], [[4, 14], [4]]]
    assert "expected 6, actual 10" in row.recompiles[0]
    assert len(row.recompile_times_s) == 2
    assert 0 < sum(row.recompile_times_s) == pytest.approx(row.compile_recompile_s, rel=0.2)
    assert read_row(tmp_path / "run") == row
    summary.print_run(row, tmp_path / "run")
    assert "(by a batch of [4, 14] and [4])" in " ".join(capsys.readouterr().out.split())
