"""The batches of a forward-only run's calls."""

import itertools
from collections.abc import Iterator

from trainkit.data.module import DataModule
from trainkit.inputs import Batch, Inputs, Shape, shape_of


def requested_batches(data: DataModule, num_calls: int) -> Iterator[tuple[int, Batch]]:
    """A batch for each of `forward.num_calls`, with the number of its epoch."""
    return itertools.islice(repeat_batches(data), num_calls)


def repeat_batches(data: DataModule) -> Iterator[tuple[int, Batch]]:
    """The batches of the run, each with the number of its epoch, without end."""
    loader = data.forward_dataloader()
    for epoch in itertools.count():
        sampler = getattr(loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)  # type: ignore[union-attr]  # hasattr
        for batch in loader:
            yield epoch, batch


def inputs_by_shape(data: DataModule, num_calls: int) -> dict[Shape, Inputs]:
    """Inputs of each shape that will come."""
    inputs_of = {}
    for _, (inputs, _) in requested_batches(data, num_calls):
        inputs_of[shape_of(inputs)] = inputs
    return inputs_of
