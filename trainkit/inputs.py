"""The inputs of a network: a tensor, a tuple that it takes by position, or a dict that it takes by keyword."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Inputs = Any  # Tensor | Sequence[Tensor] | Mapping[str, Tensor]
Batch = tuple[Inputs, Any]  # inputs, targets
Shape = tuple[int, ...]


def call(net: Callable[..., Any], inputs: Inputs) -> Any:
    """The network's outputs for its inputs."""
    if isinstance(inputs, Tensor):
        return net(inputs)
    if isinstance(inputs, Mapping):
        return net(**inputs)
    return net(*inputs)


def tensors_of(values: Any) -> list[Tensor]:
    """The tensors in a tensor or in nested tuples, lists and dicts, in order."""
    if isinstance(values, Tensor):
        return [values]
    tensors: list[Tensor] = []
    if isinstance(values, Mapping):
        values = values.values()
    elif not isinstance(values, tuple | list):
        return tensors
    for value in values:
        tensors += tensors_of(value)
    return tensors


def map_tensors(function: Callable[[Tensor], Any], values: Any) -> Any:
    """The same nesting with `function(tensor)` in place of each tensor. Named tuples become tuples."""
    if isinstance(values, Tensor):
        return function(values)
    if isinstance(values, Mapping):
        return {name: map_tensors(function, value) for name, value in values.items()}
    if isinstance(values, list):
        return [map_tensors(function, value) for value in values]
    if isinstance(values, tuple):
        return tuple(map_tensors(function, value) for value in values)
    return values


def to_device(values: Any, device: torch.device) -> Any:
    return map_tensors(lambda tensor: tensor.to(device), values)


def to_double(values: Any) -> Any:
    """Floating-point tensors in float64."""
    return map_tensors(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, values)


def shape_of(inputs: Inputs) -> Shape:
    """The shape [B, ...] of the inputs: that of all their tensors, or else one shape after another."""
    if isinstance(inputs, Tensor):
        return tuple(inputs.shape)
    shapes = [tuple(tensor.shape) for tensor in tensors_of(inputs)]
    if len(set(shapes)) == 1:
        return shapes[0]
    joined: Shape = ()
    for shape in shapes:
        joined += shape
    return joined
