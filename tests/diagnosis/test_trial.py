"""A trial's steps are those of training."""

import pytest
import torch

from trainkit.diagnosis.trial import Trial


@pytest.mark.parametrize("fused", ["true", "false"])
def test_a_step_clips_as_training_does(subject_of, fused):
    overrides = ("optimizer=sgd", "optimizer.lr=0.5", f"optimizer.fused={fused}", "optimizer.weight_decay=0")
    subject = subject_of("Clean", *overrides, "trainer.gradient_clip_val=1e-3")
    trial = Trial(subject, "training", subject.config.compile)
    with trial.running():
        trial.first_step()
    parameters = zip(trial._objective.net.parameters(), subject.net.parameters(), strict=True)
    moved = [after - before for after, before in parameters]
    assert float(torch.nn.utils.get_total_norm(moved)) == pytest.approx(0.5 * 1e-3, rel=1e-3)
