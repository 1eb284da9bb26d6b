"""Dimensions of a batch that are dynamic from the first compile, `compile.mark_dynamic`."""

import re
from collections.abc import Collection, Mapping
from math import inf

import torch

from trainkit.compiler import dynamo
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.schema import CompileConfig, DimConfig

NAMES = ("inputs", "targets")  # of a batch's tensors
TRACED_SIZE = r"L\['(\w+)'\]\S*?\.size\(\)\[(\d+)\]"  # as torch names the size of a dimension


class MarkError(ConfigError):
    """The network fixes a dimension of `compile.mark_dynamic`, as compiling it has shown."""


def check_dims(dims: list[DimConfig], batch: tuple[torch.Tensor, ...]) -> None:
    """Raise ConfigError for each marked dimension that the batch lacks."""
    complaints = []
    for dim in dims:
        shape = list(_tensor(dim, batch).shape)
        if dim.dim >= len(shape):
            complaints.append(
                f"{_label(dim)}: the shape is {shape}, with dimensions 0 to {len(shape) - 1}; name one of them"
            )
    refuse(complaints)


def check_bounds(dims: list[DimConfig], sizes_by_dim: Mapping[int, Collection[int]]) -> None:
    """Raise ConfigError for each marked dimension whose bounds include none of the sizes that will come."""
    complaints = []
    for dim in dims:
        sizes, largest = sizes_by_dim[dim.dim], dim.max or inf
        if not any(dim.min <= size <= largest for size in sizes):
            complaints.append(
                f"{_label(dim)}: the data has {_range(sizes)} here, outside {dim.min}..{largest}; "
                "change min and max, or remove the mark"
            )
    refuse(complaints)


def mark_dims(dims: list[DimConfig], inputs: tuple[torch.Tensor, ...]) -> None:
    """Make dimensions of a batch dynamic. Sizes out of the bounds get static variants."""
    for dim in dims:
        tensor = _tensor(dim, inputs)
        size = tensor.shape[dim.dim]
        if dim.max is None and dim.min <= size:
            dynamo.mark_dynamic(tensor, dim.dim, None)  # torch takes both bounds or none
        elif dim.max is not None and dim.min <= size <= dim.max:
            dynamo.mark_dynamic(tensor, dim.dim, (dim.min, dim.max))


def mark_error(config: CompileConfig, error: Exception, shapes: list[list[int]]) -> MarkError | None:
    """The complaints about marked dimensions that an error of torch names; None for any other error, also about a mark
    that the network itself makes. `shapes` are those of the batch."""
    if not dynamo.is_constraint_violation(error):
        return None
    lines = _line_by_dim(str(error))
    complaints = []
    for dim in config.mark_dynamic:
        line = lines.get((dim.input, dim.dim))
        if line is not None:
            complaints.append(f"{_label(dim)}: {_problem(config, dim, line, shapes)}")
    if not complaints:
        return None
    return MarkError(*complaints)


def _tensor(dim: DimConfig, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return batch[NAMES.index(dim.input)]


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


def _problem(config: CompileConfig, dim: DimConfig, line: str, shapes: list[list[int]]) -> str:
    condition = re.search(r"generated guard (.*?)\.?$", line)
    if condition is not None:
        sizes = re.sub(TRACED_SIZE, "size", condition[1])
        return f"the network takes it only where {sizes}; remove its min and max, or the mark"
    constant = re.search(r"constant \((\d+)\)", line)
    problem = "the network fixes it"
    if constant is not None:
        problem += f" to {constant[1]}"
    other = _other_input(dim)
    if config.scope == "step" and _share_size(dim, other, shapes) and other not in config.mark_dynamic:
        return f"{problem}, which {other.input} have too; mark both with the same bounds, or remove the mark"
    return f"{problem}; remove the mark, compile.dynamic=null makes sizes dynamic that change"


def _other_input(dim: DimConfig) -> DimConfig:
    """The same dimension of the batch's other tensor."""
    inputs, targets = type(dim.input)
    other = targets if dim.input == inputs else inputs
    return DimConfig(other, dim.dim, dim.min, dim.max)


def _share_size(dim: DimConfig, other: DimConfig, shapes: list[list[int]]) -> bool:
    if len(shapes) < len(NAMES):  # forward alone has inputs alone
        return False
    shape, other_shape = shapes[NAMES.index(dim.input)], shapes[NAMES.index(other.input)]
    return other.dim < len(other_shape) and other_shape[other.dim] == shape[dim.dim]
