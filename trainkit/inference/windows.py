"""Calls back to back, as a loop makes them that needs no answer before the next call (`forward.timing=stream`)."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import torch

from trainkit.inference.cascade import CascadeStage
from trainkit.inputs import Batch, Inputs, shape_of, to_device
from trainkit.metrics.calls import CallMeters


def call_windows(
    stage: CascadeStage, batches: Iterator[tuple[int, Batch]], meters: CallMeters, device: torch.device
) -> None:
    """Call a stage, a window of `forward.calls_per_window` at a time, whose inputs are on the device before it
    begins."""
    while window := list(itertools.islice(batches, stage.config.forward.calls_per_window)):
        inputs = [to_device(batch[0], device) for _, batch in window]
        shapes = [shape_of(entry) for entry in inputs]
        with stage.ready(device):
            meters.window(partial(_call_all, stage, inputs), shapes)


def _call_all(stage: CascadeStage, inputs: Sequence[Inputs]) -> None:
    call, casts = stage.call, stage.config.amp.precision != "32-true"
    for entry in inputs:
        call(entry)
        if casts:
            torch.clear_autocast_cache()  # every call casts the weights, as a call by itself does
