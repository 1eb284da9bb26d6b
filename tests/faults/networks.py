"""A network that fails as requested, in training or in validation, compiled or not."""

import time

import torch
from torch import Tensor, nn

TOO_MANY_BYTES = 2**50
ENDLESS_S = 10_000
CYCLES_PER_S = 2 * 10**9  # about those of a GPU

# Faults of a device, by where they come: all but `validation` in training.
FAULTS = "training", "validation", "capture", "assert", "hang"


@torch.library.custom_op("trainkit_faults::fail", mutates_args=())
def fail(images: Tensor, fault: str) -> Tensor:
    """The images, after a fault. A function that torch.compile calls as it is."""
    is_captured = images.is_cuda and torch.cuda.is_current_stream_capturing()
    if fault in ("training", "validation") or (fault == "capture" and is_captured):
        torch.empty(TOO_MANY_BYTES, dtype=torch.uint8, device=images.device)
    if fault == "assert":
        return images + torch.zeros(4, device=images.device)[torch.full((1,), 7, device=images.device)]
    if fault == "hang" and images.is_cuda:
        torch.cuda._sleep(ENDLESS_S * CYCLES_PER_S)
    if fault == "hang" and not images.is_cuda:
        time.sleep(ENDLESS_S)
    return images.clone()


@fail.register_fake
def _(images: Tensor, fault: str) -> Tensor:
    return torch.empty_like(images)


class Faulty(nn.Module):
    """A linear classifier of digits with one of FAULTS; none with any other word."""

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int, fault: str):
        super().__init__()
        self.fc = nn.Linear(channels * image_size**2, num_classes)
        self.fault = fault

    def forward(self, images: Tensor) -> Tensor:
        is_tried = not self.training and images.shape[0] <= 2  # with the first samples, before the run
        if self.training != (self.fault == "validation") and not is_tried:
            images = fail(images, self.fault)
        return self.fc(images.flatten(1))
