"""Dimensions of a batch that are compiled as open from the start, `compile.mark_dynamic`: do they fit what is there?"""

import re
from collections.abc import Collection, Mapping
from math import inf

import torch

from trainkit.compiler.facts import Shapes
from trainkit.config.errors import ConfigError
from trainkit.config.schema import CompileConfig, DimConfig

NAMES = ("inputs", "targets")  # of a batch's tensors


class MarkError(ConfigError):
    """A dimension of `compile.mark_dynamic` that the network does not leave open, as compiling it has shown."""


def check(asked: list[DimConfig], batch: tuple[torch.Tensor, ...]) -> None:
    """Raise ConfigError for each dimension to mark that the batch has not."""
    complaints = [
        f"compile.mark_dynamic, {one.input.value} {one.dim}: they are of shape {list(shape)}, with dimensions 0 to "
        f"{len(shape) - 1}; name one of them"
        for one in asked
        if one.dim >= len(shape := batch[NAMES.index(one.input.value)].shape)
    ]
    if complaints:
        raise ConfigError(*complaints)


def check_bounds(asked: list[DimConfig], coming: Mapping[int, Collection[int]]) -> None:
    """Raise ConfigError for each dimension to mark whose bounds hold none of the sizes that will come."""
    complaints = []
    for one in asked:
        sizes, most = coming[one.dim], one.max or inf
        if not any(one.min <= size <= most for size in sizes):
            least, largest = min(sizes), max(sizes)
            complaints.append(
                f"compile.mark_dynamic, {one.input.value} {one.dim}: no size from {one.min} to {most} comes, but "
                f"{least}{f' to {largest}' if largest > least else ''}; change min and max, or leave it out"
            )
    if complaints:
        raise ConfigError(*complaints)


def fixed(config: CompileConfig, said: str, shapes: Shapes) -> list[str]:
    """A complaint for each marked dimension that torch's words, of a ConstraintViolationError, name; what the network
    calls otherwise is its inputs. `shapes` are those of the batch."""
    found: dict[tuple[str, int], str] = {}
    for line in said.splitlines():
        if named := re.search(r"^\s+- .*?L\['(\w+)'\]\S*\.size\(\)\[(\d+)\]", line):
            found.setdefault((named[1] if named[1] in NAMES else NAMES[0], int(named[2])), line)
    return [
        f"compile.mark_dynamic, {one.input.value} {one.dim}: {_why_fixed(config, one, line, shapes)}"
        for one in config.mark_dynamic
        if (line := found.get((one.input.value, one.dim), ""))
    ]


def _why_fixed(config: CompileConfig, one: DimConfig, said: str, shapes: Shapes) -> str:
    if condition := re.search(r"generated guard (.*?)\.?$", said):
        sizes = re.sub(r"L\['\w+'\]\S*?\.size\(\)\[\d+\]", "size", condition[1])
        return f"the network takes it only where {sizes}; leave out its min and max, or the mark"
    constant = re.search(r"constant \((\d+)\)", said)
    problem = f"the network fixes it{f' to {constant[1]}' if constant else ''}"
    (other,) = (name for name in NAMES if name != one.input.value)
    sizes_of = dict(zip(NAMES, shapes, strict=False))  # forward alone has inputs alone
    shared = config.scope.value == "step" and sizes_of.get(other, [])[one.dim : one.dim + 1]
    alike = DimConfig(type(one.input)[other], one.dim, one.min, one.max)
    if shared == sizes_of[one.input.value][one.dim : one.dim + 1] and alike not in config.mark_dynamic:
        return f"{problem}, which {other} have too; mark both with the same bounds, or leave it out"
    return f"{problem}; leave it out, compile.dynamic=null opens sizes that change"
