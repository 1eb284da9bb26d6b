"""Figures of a device on their way to the host."""

import torch
from torch import Tensor


class HostCopy:
    """A small tensor that is copied to the host without waiting for the device."""

    def __init__(self, values: Tensor):
        self._done: torch.cuda.Event | None = None
        if values.is_cuda:
            self._values = torch.empty_like(values, device="cpu", pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._done = torch.cuda.Event()
            self._done.record()
        else:
            self._values = values.clone()

    def is_done(self) -> bool:
        return self._done is None or self._done.query()

    def tolist(self) -> list[float]:
        """The values. Waits for the copy if it is not done."""
        if self._done is not None:
            self._done.synchronize()
        return [float(value) for value in self._values.flatten().tolist()]
