"""Dimensions of a batch that are dynamic from the first compile, `compile.mark_dynamic`."""

import re
from collections.abc import Collection, Mapping
from math import inf
from typing import Any

from torch import Tensor

from trainkit.compiler import dynamo
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.schema import CompileConfig, DimConfig
from trainkit.inputs import tensors_of

NAMES = ("inputs", "targets")  # of a batch; each may be several tensors, and a mark is for all of them
TRACED_SIZE = r"L\['(\w+)'\]\S*?\.size\(\)\[(\d+)\]"  # as torch names the size of a dimension


class MarkError(ConfigError):
    """The network fixes a dimension of `compile.mark_dynamic`, as compiling it has shown."""


def check_dims(dims: list[DimConfig], batch: tuple[Any, ...]) -> None:
    """Raise ConfigError for each marked dimension that no tensor of the batch has."""
    complaints = []
    for dim in dims:
        shapes = [list(tensor.shape) for tensor in tensors_of(batch[NAMES.index(dim.input)])]
        longest = max(shapes, key=len)
        if dim.dim >= len(longest):
            complaints.append(
                f"{_label(dim)}: the shape is {longest}, with dimensions 0 to {len(longest) - 1}; name one of them"
            )
    refuse(complaints)


def check_bounds(dims: list[DimConfig], sizes_by_dim: Mapping[int, Collection[int]]) -> None:
    """Raise ConfigError for each marked dimension whose bounds include none of the sizes that will come."""
    complaints = []
    for dim in dims:
        if dim.dim not in sizes_by_dim:  # of data of the user's own
            continue
        sizes, largest = sizes_by_dim[dim.dim], dim.max or inf
        if not any(dim.min <= size <= largest for size in sizes):
            complaints.append(
                f"{_label(dim)}: the data has {_range(sizes)} here, outside {dim.min}..{largest}; "
                "change min and max, or remove the mark"
            )
    refuse(complaints)


def mark_dims(dims: list[DimConfig], batch: tuple[Any, ...]) -> None:
    """Make dimensions of a batch dynamic. Sizes out of the bounds get static variants."""
    for dim in dims:
        for tensor in _marked_tensors(dim, batch):
            size = tensor.shape[dim.dim]
            if dim.max is None and dim.min <= size:
                dynamo.mark_dynamic(tensor, dim.dim, None)  # torch takes both bounds or none
            elif dim.max is not None and dim.min <= size <= dim.max:
                dynamo.mark_dynamic(tensor, dim.dim, (dim.min, dim.max))


def mark_error(config: CompileConfig, error: Exception, batch: tuple[Any, ...]) -> MarkError | None:
    """The complaints about marked dimensions that an error of torch names; None for any other error, also about a mark
    that the network itself makes."""
    if not dynamo.is_constraint_violation(error):
        return None
    lines = _line_by_dim(str(error))
    complaints = []
    for dim in config.mark_dynamic:
        line = lines.get((dim.input, dim.dim))
        if line is not None:
            complaints.append(f"{_label(dim)}: {_problem(config, dim, line, batch)}")
    if not complaints:
        return None
    return MarkError(*complaints)


def _marked_tensors(dim: DimConfig, batch: tuple[Any, ...]) -> list[Tensor]:
    """The tensors that have the dimension."""
    return [tensor for tensor in tensors_of(batch[NAMES.index(dim.input)]) if tensor.ndim > dim.dim]


def _label(dim: DimConfig) -> str:
    return f"compile.mark_dynamic, {dim.input} {dim.dim}"


def _range(sizes: Collection[int]) -> str:
    if min(sizes) == max(sizes):
        return f"size {min(sizes)}"
    return f"sizes {min(sizes)} to {max(sizes)}"


def _line_by_dim(message: str) -> dict[tuple[str, int], str]:
    """The first line of the message about each dimension. A name that is none of NAMES is the network's own for its
    inputs."""
    lines: dict[tuple[str, int], str] = {}
    for line in message.splitlines():
        match = re.search(rf"^\s+- .*?{TRACED_SIZE}", line)
        if match is not None:
            name = match[1] if match[1] in NAMES else NAMES[0]
            lines.setdefault((name, int(match[2])), line)
    return lines


def _problem(config: CompileConfig, dim: DimConfig, line: str, batch: tuple[Any, ...]) -> str:
    condition = re.search(r"generated guard (.*?)\.?$", line)
    if condition is not None:
        sizes = re.sub(TRACED_SIZE, "size", condition[1])
        return f"the network takes it only where {sizes}; remove its min and max, or the mark"
    constant = re.search(r"constant \((\d+)\)", line)
    problem = "the network fixes it"
    if constant is not None:
        problem += f" to {constant[1]}"
    other = _other_input(dim)
    if config.scope == "step" and _share_size(dim, other, batch) and other not in config.mark_dynamic:
        return f"{problem}, which {other.input} have too; mark both with the same bounds, or remove the mark"
    return f"{problem}; remove the mark, compile.dynamic=null makes sizes dynamic that change"


def _other_input(dim: DimConfig) -> DimConfig:
    """The same dimension of the targets for the inputs, or the other way round."""
    inputs, targets = type(dim.input)
    other = targets if dim.input == inputs else inputs
    return DimConfig(other, dim.dim, dim.min, dim.max)


def _share_size(dim: DimConfig, other: DimConfig, batch: tuple[Any, ...]) -> bool:
    if len(batch) < len(NAMES):  # forward alone has inputs alone
        return False
    sizes = {tensor.shape[dim.dim] for tensor in _marked_tensors(dim, batch)}
    other_sizes = {tensor.shape[other.dim] for tensor in _marked_tensors(other, batch)}
    return not sizes.isdisjoint(other_sizes)
