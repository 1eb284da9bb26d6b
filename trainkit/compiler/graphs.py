"""The graphs of a compile, marked in a profile and written out as code."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor
from torch.fx import GraphModule
from torch.profiler import record_function

from trainkit.compiler.private_names import require
from trainkit.compiler.source import REGION_CALL, shortened, source_line, user_frames
from trainkit.config.schema import CompileConfig, Mode, PartConfig

COMPILED_GRAPH = "trainkit: compiled graph"
BACKWARD = "CompiledFunctionBackward"  # AOTAutograd's name for its graph of the backward, in a profile too
_numbers = count()  # of registered backends
Config = TypeVar("Config", CompileConfig, PartConfig)


@dataclass(frozen=True)
class Captured:
    """A graph: its number, the source lines of its operations, and the line of the graph break that ended it, if any;
    each line as (file, line)."""

    number: int
    lines: list[tuple[str, int]]
    broken_at: tuple[str, int] | None


def watched(config: CompileConfig, folder: Path | None = None, captured: list[Captured] | None = None) -> CompileConfig:
    """A config that compiles as this one does, regions included, and whose graphs appear in a profile: those of the
    forward as COMPILED_GRAPH, those of the backward as BACKWARD (with a backend that has them).

    With a folder each graph is also written into it, N counting the graphs that Dynamo captures:
    `graph_N.txt` as captured, and with inductor `graph_N_forward.txt`, `graph_N_backward.txt` after differentiation and
    `graph_N_forward_kernels.py`, `graph_N_backward_kernels.py`, the generated code. Every file begins with the source
    lines of its operations. `guards.txt` has the guards of all graphs. Graphs from the cache are not compiled: use
    compile_cache("cold"). `captured` gets an entry for each graph.
    """
    if captured is None:
        captured = []
    parts = [_with_watched_backend(part, folder, captured) for part in config.parts]
    return replace(_with_watched_backend(config, folder, captured), parts=parts)


def _with_watched_backend(config: Config, folder: Path | None, captured: list[Captured]) -> Config:
    if config.mode == "eager":
        return config

    def backend(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        name = f"graph_{len(captured)}"
        captured.append(Captured(len(captured), source_lines(graph), _broken_at(graph)))
        path = None
        if folder is not None:
            path = folder / name
            _write_code(path.with_name(f"{name}.txt"), graph, _readable(graph))
        compiled = _compile_graph(config, graph, inputs, path)

        def call(*args: Any) -> Any:
            with record_function(COMPILED_GRAPH):
                return compiled(*args)

        return call

    name = f"watched_{next(_numbers)}"
    require("register_backend")(backend, name)
    options = {} if folder is None else {"guard_filter_fn": partial(_write_guards, folder / "guards.txt")}
    return replace(config, backend=name, mode=Mode["default"], options=options)


def _write_guards(path: Path, guards: Sequence[Any]) -> list[bool]:
    """Write the guards of a graph, and keep them all. Torch's `guard_filter_fn`."""
    lines: dict[str, None] = {}
    for guard in guards:
        lines[f"{guard.guard_type} {guard.name}{_guarded(guard)}".strip()] = None
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join([*lines, "", ""]))
    return [True] * len(guards)


def _guarded(guard: Any) -> str:
    """The value that a guard expects, as text."""
    value = guard.value
    if not guard.has_value:
        return ""
    if isinstance(value, Tensor):
        return f": {value.dtype} {list(value.shape)} on {value.device}, requires_grad={value.requires_grad}"
    if isinstance(value, bool | int | float | str | None):
        return f": {value}"
    return f": {type(value).__name__}"


def _compile_graph(
    config: CompileConfig | PartConfig, graph: GraphModule, inputs: list[Any], path: Path | None
) -> Callable[..., Any]:
    """A graph compiled by the requested backend; with a path inductor's graphs and kernels are written beside it."""
    compiled: Callable[..., Any]
    if config.backend != "inductor":
        compiled = require("lookup_backend")(config.backend)(graph, inputs)
        return compiled
    compile_inner = require("compile_fx_inner")

    def inner(graph: GraphModule, inputs: list[Any], **options: Any) -> Any:
        if path is None:
            return compile_inner(graph, inputs, **options)
        direction = "backward" if options.get("is_backward") else "forward"
        stem = f"{path.name}_{direction}"
        _write_code(path.with_name(f"{stem}.txt"), graph, _readable(graph))  # before: compiling changes the graph
        output = compile_inner(graph, inputs, **options)
        _write_code(path.with_name(f"{stem}_kernels.py"), graph, getattr(output, "source_code", ""))
        return output

    options = config.options or require("list_mode_options")(config.mode, config.dynamic)
    compiled = require("compile_fx")(graph, inputs, inner_compile=inner, config_patches=options)
    return compiled


def _readable(graph: GraphModule) -> str:
    return graph.print_readable(print_output=False, include_stride=True, include_device=True)


def _write_code(path: Path, graph: GraphModule, code: str) -> None:
    lines = ["# Made of:"]
    for file, line in source_lines(graph):
        lines.append(f"# {file}:{line}: {source_line(file, line)}")
    lines += ["", code, ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def source_lines(graph: GraphModule) -> list[tuple[str, int]]:
    """The distinct source lines of the graph's operations, each as (file, line), in their order."""
    lines: dict[tuple[str, int], None] = {}  # as a set that keeps its order
    for node in graph.graph.nodes:
        frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        frames = [frame for frame in frames if frame[0] != REGION_CALL]
        if frames:
            file, line = frames[-1]
            lines[file, int(line)] = None
    return list(lines)


def _broken_at(graph: GraphModule) -> tuple[str, int] | None:
    """The line of the graph break that ended a graph; None if it ends with its function, or torch does not say."""
    reason = getattr(graph, "compile_subgraph_reason", None)
    if not getattr(reason, "graph_break", False):
        return None
    frames = user_frames(getattr(reason, "user_stack", []))
    if not frames:
        return None
    return frames[-1].filename, frames[-1].lineno or 0


def index(phase: str, captured: list[Captured], folder: Path) -> str:
    """A paragraph for each graph of a phase: its source lines, the break after it, its files in `folder`."""
    paragraphs = []
    for graph in captured:
        lines = [f"{phase}, graph {graph.number}"]
        for file, line in graph.lines:
            lines.append(f"  made of {_line_label(file, line)}")
        if graph.broken_at is not None:
            lines.append(f"  broken at {_line_label(*graph.broken_at)}")
        pattern = rf"graph_{graph.number}(_.*)?\.(txt|py)"
        for path in sorted(folder.iterdir()):
            if re.fullmatch(pattern, path.name):
                lines.append(f"  {folder.name}/{path.name}")
        paragraphs.append("\n".join(lines) + "\n")
    return "\n".join(paragraphs)


def _line_label(file: str, line: int) -> str:
    return f"{shortened(file)}:{line}: {source_line(file, line)}"
