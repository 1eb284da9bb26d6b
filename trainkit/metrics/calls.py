"""What calls of a network took: each from its batch being on the device to its result being there, on the host's clock.

The device is idle when a call begins, and has finished when it ends: what is measured is how long one waits for an
answer, the host's share included. All else about steps is as in training.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from trainkit.metrics.meters import Costs
from trainkit.metrics.steps import Step, percentile
from trainkit.metrics.timer import mark, milliseconds
from trainkit.results.facts import ShapeLatency

T = TypeVar("T")
Shape = tuple[int, ...]


class CallMeters(Costs):
    """Measures calls: a step is one call, and steps are alike that are of one network and one shape of inputs.

    With `measured_first` the calls between the first `begin` and `end` are those that measure each network, so all warm
    up, and the later ones are steady unless something compiled.
    """

    def __init__(self, measured_first: bool = False) -> None:
        super().__init__()
        self.measured_first = measured_first
        self.calls: list[Step] = []

    def begin(self, device: torch.device) -> None:
        self.calls = []
        self._begin(device)

    def end(self, complete: bool) -> None:
        """Called once more, it does nothing."""
        if self._open:
            self.epochs.append(self._close(lambda: self.calls, complete))

    def call(self, answer: Callable[[], T], network: int, shape: Shape) -> tuple[T, Step]:
        """What `answer()` returns, and what it took. `shape` [B, ...] is that of its inputs."""
        self._synchronize()
        num_compiles, self._ran_eager = self.num_compiles, False
        start = mark(on_gpu=False)
        answered = answer()
        self._synchronize()
        time_ms = milliseconds(start, mark(on_gpu=False))
        compiled = self.num_compiles > num_compiles
        step = Step(time_ms, time_ms, 0.0, 1, compiled, 0.0, self._ran_eager, shape[0], (network, shape))
        self.calls.append(step)
        self._leave_compile_phase()
        return answered, step

    def classified(self) -> list[list[str]]:
        if not self.measured_first:
            return super().classified()
        kinds = ("warm-up", "steady")
        return [
            ["compiling" if step.compiled else kind for step in epoch.steps]
            for kind, epoch in zip(kinds, self.epochs, strict=False)
        ]

    def steady_calls(self) -> list[Step]:
        return [step for epoch in self.steady_steps() for step in epoch]

    def summary(self, autotune_s: dict[str, float], tells_eager: bool, skips_function: bool = False) -> dict[str, Any]:
        # Nothing was trained, and what is between two calls belongs to none of them.
        of_training = dict.fromkeys(("epoch_train_time_s", "epoch_val_time_s", "data_wait_frac"))
        shapes = sorted({step.alike[1] for epoch in self.epochs for step in epoch.steps})  # type: ignore[index]
        times_ms: dict[Shape, list[float]] = {shape: [] for shape in shapes}
        for step in self.steady_calls():
            times_ms[step.alike[1]].append(step.time_ms)  # type: ignore[index]
        by_shape = [ShapeLatency(list(shape), **_told(times)) for shape, times in times_ms.items()]
        return (
            super().summary(autotune_s, tells_eager, skips_function)
            | of_training
            | {"latency_by_shape": by_shape[1:] and by_shape}
        )

    def of(self, network: int) -> dict[str, Any]:
        """num_calls and percentiles of the steady calls of one network."""
        return _told([step.time_ms for step in self.steady_calls() if step.alike[0] == network])  # type: ignore[index]


def _told(times_ms: list[float]) -> dict[str, Any]:
    return {"num_calls": len(times_ms)} | {f"time_ms_p{q}": percentile(times_ms, q) for q in (50, 90, 99)}
