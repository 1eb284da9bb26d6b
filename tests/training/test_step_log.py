"""Figures of single steps in the loggers."""

import csv

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from trainkit.training.run import run

NORMS: list[float] = []
LOSSES: list[float] = []


class Reference(Callback):
    """The loss and the norm of each step, computed as anyone would."""

    def on_before_optimizer_step(self, trainer, task, optimizer):
        norms = [parameter.grad.norm() for parameter in task.parameters()]
        NORMS.append(float(torch.stack(norms).norm()))

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        LOSSES.append(float(outputs["loss"]))


@pytest.mark.parametrize("requested", [(), ("trainer.gradient_clip_val=0.01",)], ids=["plain", "clipped"])
def test_loss_learning_rate_and_norm_before_clipping_of_every_nth_step(requested, compose, tmp_path):
    NORMS.clear()
    LOSSES.clear()
    asked = ("compile.mode=eager", "trainer.max_epochs=2", "trainer.limit_train_batches=7", "logger=csv")
    reference = f"+callbacks.reference._target_={__name__}.Reference"
    row = run(compose(*asked, *requested, reference, "trainer.log_every_n_steps=4", "optimizer.lr=0.01"))
    assert row.status == "ok"
    with (tmp_path / "run" / "csv" / "metrics.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["step/loss"]]
    assert [int(line["step"]) for line in lines] == [4, 8, 12]
    for line in lines:
        step = int(line["step"]) - 1
        assert float(line["step/loss"]) == pytest.approx(LOSSES[step], rel=1e-5)
        assert float(line["step/grad_norm"]) == pytest.approx(NORMS[step], rel=1e-4)
        assert float(line["step/lr"]) == 0.01
