"""FSDP2 trains as DDP does, and its checkpoints are those of any other run."""

import torch

from tests.conftest import parameters
from trainkit.results.files import read_row
from trainkit.training.run import run

SMALL = (
    "model=gpt2", "model.dim=32", "model.depth=2", "model.num_heads=2", "data=synthetic", "data.vocab_size=100",
    "data.seq_len=8", "data.batch_size=4", "data.num_batches=4", "data.num_val_batches=2", "logger=none",
    "trainer.accumulate_grad_batches=2", "trainer.gradient_clip_val=0.1", "compile.scope=blocks",
    "compile.backend=aot_eager",
)  # fmt: skip


def test_it_trains_as_ddp_and_resumes_sharded_or_in_one_process(train, compose, tmp_path):
    def fit(name: str, *words: str) -> None:
        done = train(*SMALL, *words, f"hydra.run.dir={name}", ranks=2)
        assert done.returncode == 0, done.stderr

    fit("ddp", "ddp.strategy=ddp", "trainer.max_epochs=2")
    fit("half", "ddp.strategy=fsdp2", "trainer.max_epochs=1")
    checkpoint = f"ckpt_path={tmp_path}/half/checkpoints/last.ckpt"
    fit("whole", "ddp.strategy=fsdp2", "trainer.max_epochs=2", checkpoint)
    row = read_row(tmp_path / "whole")
    assert (row.strategy, row.world_size, row.effective_mode, row.num_graph_breaks) == ("fsdp2", 2, "default", 0)
    trained, expected = parameters(tmp_path / "whole"), parameters(tmp_path / "ddp")
    assert trained.keys() == expected.keys()
    for name, tensor in trained.items():  # norms and sums of sharded gradients are added in another order
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-4)

    alone = run(compose(*SMALL, "trainer.max_epochs=2", checkpoint))
    assert (alone.status, alone.strategy, alone.num_epochs) == ("ok", "single", 1)


def test_ranks_with_different_numbers_of_validation_batches(train, tmp_path):
    """359 digits are 2 batches of the first rank and 1 of the second."""
    words = (
        "model=resnet18", "model.width=8", "data.batch_size=179", "trainer.limit_train_batches=1",
        "trainer.max_epochs=2", "trainer.activation_checkpointing=true", "compile.mode=eager", "amp=bf16",
        "logger=none",
    )  # fmt: skip
    done = train(*words, "ddp.strategy=fsdp2", "hydra.run.dir=run", ranks=2)
    assert done.returncode == 0, done.stderr
    row = read_row(tmp_path / "run")
    assert (row.status, row.num_val_targets, row.num_epochs) == ("ok", 359, 2)
