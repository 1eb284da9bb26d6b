"""The sizes of captured graphs by source line, and the loops that Python unrolled into them."""

import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from torch.fx import GraphModule, Node

from trainkit.compiler.private_names import require
from trainkit.compiler.source import source_location, user_frames
from trainkit.config.schema import CompileConfig, Mode
from trainkit.results.facts import LineSize

FRAME = r'File "([^"]+)", line (\d+), in (\S+)'
OPERATIONS = ("call_function", "call_method", "call_module")
_numbers = count()  # of registered backends

Frame = tuple[str, int]
Stack = tuple[Frame, ...]  # outermost first, frames of the user's code alone


@dataclass(frozen=True)
class Operation:
    """An operation of a graph: what it computes, the lines that lead to it, and the module that it belongs to."""

    target: str
    stack: Stack
    module: str


@dataclass
class _Calls:
    """What is below a line: how often each operation occurs, and its modules. Operations are told apart by the lines
    that lead from here to them."""

    counts: Counter[tuple[Stack, str]] = field(default_factory=Counter)
    modules: dict[tuple[Stack, str], set[str]] = field(default_factory=dict)

    def add(self, below: Stack, operation: Operation) -> None:
        key = (below, operation.target)
        self.counts[key] += 1
        self.modules.setdefault(key, set()).add(operation.module)

    @property
    def num_repeats(self) -> int:
        """How often the line ran: as often as the rarest of its operations that occurs more than once."""
        return min((number for number in self.counts.values() if number > 1), default=1)

    @property
    def is_passed_through(self) -> bool:
        """Whether all that is repeated is called by one line below: that one may be in the loop, and this one before
        it."""
        repeated = [below for (below, _), number in self.counts.items() if number > 1]
        next_lines = {below[:1] for below in repeated}
        return len(next_lines) == 1 and () not in next_lines

    @property
    def num_modules(self) -> int:
        return max(len(modules) for modules in self.modules.values())


def capturing(config: CompileConfig, operations: list[Operation]) -> CompileConfig:
    """A config with which Dynamo captures as with this one, and nothing is compiled: the graphs run as they are.
    `operations` gets those of each graph."""

    def backend(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        for node in graph.graph.nodes:
            if node.op in OPERATIONS:
                operations.append(_operation(node))
        forward: Callable[..., Any] = graph.forward
        return forward

    name = f"capturing_{next(_numbers)}"
    require("register_backend")(backend, name)
    parts = []
    for part in config.parts:
        if part.mode != "eager":
            part = replace(part, backend=name, mode=Mode["default"], options={})
        parts.append(part)
    return replace(config, backend=name, mode=Mode["default"], options={}, parts=parts)


def _operation(node: Node) -> Operation:
    frames = []
    for file, line, function in re.findall(FRAME, node.meta.get("stack_trace") or ""):
        frames.append(traceback.FrameSummary(file, int(line), function, lookup_line=False))
    stack = tuple((frame.filename, frame.lineno or 0) for frame in user_frames(frames))
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    module = str(modules[-1][0]) if modules else ""
    return Operation(str(node.target), stack, module)


def line_sizes(operations: Iterable[Operation]) -> list[LineSize]:
    """The lines that make operations themselves, the largest first."""
    calls_by_frame: dict[Frame, _Calls] = {}
    for operation in operations:
        if operation.stack:
            calls_by_frame.setdefault(operation.stack[-1], _Calls()).add((), operation)
    sizes = [_line_size(frame, calls) for frame, calls in calls_by_frame.items()]
    return sorted(sizes, key=lambda size: -size.num_operations)


def unrolled_loops(operations: Iterable[Operation], min_repeats: int) -> list[LineSize]:
    """The lines that the graphs have `min_repeats` times or more, with all that they call, the largest first.

    Of lines that call one another it is the outermost one that does more than to call the next: the body of the loop.
    """
    below: dict[Stack, _Calls] = {}
    for operation in operations:
        for depth in range(1, len(operation.stack) + 1):
            path, callees = operation.stack[:depth], operation.stack[depth:]
            below.setdefault(path, _Calls()).add(callees, operation)
    loops: dict[Stack, LineSize] = {}
    for path in sorted(below, key=len):
        is_in_a_loop = any(path[:depth] in loops for depth in range(1, len(path)))
        if is_in_a_loop or below[path].is_passed_through:
            continue
        if below[path].num_repeats >= min_repeats:
            loops[path] = _line_size(path[-1], below[path])
    return sorted(loops.values(), key=lambda size: -size.num_operations)


def _line_size(frame: Frame, calls: _Calls) -> LineSize:
    location = source_location(*frame)
    num_operations = calls.counts.total()
    return LineSize(location.file, location.line, location.code, num_operations, calls.num_repeats, calls.num_modules)
