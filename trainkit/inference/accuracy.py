"""How many of the targets the answers of a stage predict."""

from typing import Any

import torch
from torch import Tensor

from trainkit.data.module import DataModule
from trainkit.inference.batches import requested_batches
from trainkit.inference.cascade import CascadeStage
from trainkit.inference.deadlines import Answer
from trainkit.inputs import to_device
from trainkit.training.loss import IGNORE_INDEX
from trainkit.training.objective import num_right


def answer_of(stage: int, time_ms: float, outputs: Any, targets: Tensor, data: DataModule) -> Answer:
    """The answer that a stage gave in this time; targets of IGNORE_INDEX do not count."""
    right = num_right(outputs, targets, data.sizes.get("num_classes", 2))
    if right is None:
        return Answer(stage, time_ms)
    return Answer(stage, time_ms, right, int((targets != IGNORE_INDEX).sum()))


def accuracy_of(stage: CascadeStage, data: DataModule, num_calls: int, device: torch.device) -> float | None:
    """The accuracy of a stage over the batches of the calls, each once; None if it predicts no targets."""
    total_right = total_targets = 0
    with stage.ready(device):
        for epoch, batch in requested_batches(data, num_calls):
            if epoch > 0:
                break
            inputs, targets = to_device(batch, device)
            answer = answer_of(0, 0.0, stage.call(inputs), targets, data)
            total_right += answer.num_right
            total_targets += answer.num_targets
    return total_right / total_targets if total_targets else None
