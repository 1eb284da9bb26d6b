"""The graphs of a compile, marked in a profile and written out as code."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch._dynamo
from torch.fx import GraphModule
from torch.profiler import record_function

from trainkit.compiler.source import PART_CALL, shortened, source_line, users_frames
from trainkit.config.schema import CompileConfig, Mode, PartConfig

FORWARD = "trainkit: compiled graph"
BACKWARD = "CompiledFunctionBackward"  # what AOTAutograd names its graph of the backward, in a profile too
_names = count()
Asked = TypeVar("Asked", CompileConfig, PartConfig)


@dataclass(frozen=True)
class Captured:
    """A graph: its number, the source lines it was made of, and the line of the graph break that ended it, if any; each
    line as (file, line)."""

    number: int
    lines: list[tuple[str, int]]
    broken_at: tuple[str, int] | None


def watched(config: CompileConfig, folder: Path | None = None, captured: list[Captured] | None = None) -> CompileConfig:
    """A config that compiles as this one does, parts included, and whose graphs appear in a profile: those of the
    forward as FORWARD, those of the backward as BACKWARD (with a backend that has them).

    With a folder each graph is also written into it, N counting the graphs that Dynamo captures:
    `graph_N.txt` as captured, and with inductor `graph_N_forward.txt`, `graph_N_backward.txt` after differentiation and
    `graph_N_forward_kernels.py`, `graph_N_backward_kernels.py`, the code that was generated. Every file begins with the
    source lines that it came from. What comes from the cache was not compiled: use compile.cache("cold"). `captured`
    gets an entry for each graph.
    """
    seen: list[Captured] = [] if captured is None else captured
    return replace(_marked(config, folder, seen), parts=[_marked(part, folder, seen) for part in config.parts])


def _marked(asked: Asked, folder: Path | None, captured: list[Captured]) -> Asked:
    def backend(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        name = f"graph_{len(captured)}"
        captured.append(Captured(len(captured), source_lines(graph), _broken_at(graph)))
        if folder is not None:
            _write(folder / f"{name}.txt", graph, _readable(graph))
        compiled = _compiled(asked, graph, inputs, None if folder is None else folder / name)

        def call(*args: Any) -> Any:
            with record_function(FORWARD):
                return compiled(*args)

        return call

    if asked.mode.value == "eager":
        return asked
    name = f"watched_{next(_names)}"
    torch._dynamo.register_backend(backend, name)
    return replace(asked, backend=name, mode=Mode["default"])


def _compiled(
    asked: CompileConfig | PartConfig, graph: GraphModule, inputs: list[Any], path: Path | None
) -> Callable[..., Any]:
    """What the backend that was asked for makes of a graph."""
    if asked.backend != "inductor":
        return torch._dynamo.lookup_backend(asked.backend)(graph, inputs)
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def inner(graph: GraphModule, inputs: list[Any], **options: Any) -> Any:
        if path is None:
            return compile_fx_inner(graph, inputs, **options)
        half = f"{path.name}_{'backward' if options.get('is_backward') else 'forward'}"
        _write(path.with_name(f"{half}.txt"), graph, _readable(graph))  # before: compiling changes the graph
        output = compile_fx_inner(graph, inputs, **options)
        _write(path.with_name(f"{half}_kernels.py"), graph, getattr(output, "source_code", ""))
        return output

    options = list_mode_options(asked.mode.value, asked.dynamic)
    compiled: Any = compile_fx(graph, inputs, inner_compile=inner, config_patches=options)
    return compiled


def _readable(graph: GraphModule) -> str:
    return graph.print_readable(print_output=False, include_stride=True, include_device=True)


def _write(path: Path, graph: GraphModule, code: str) -> None:
    lines = [f"# {file}:{line}: {source_line(file, line)}" for file, line in source_lines(graph)]
    path.write_text("\n".join(["# Made of:", *lines, "", code, ""]), encoding="utf-8")


def source_lines(graph: GraphModule) -> list[tuple[str, int]]:
    """The distinct lines of source that the graph's operations come from, each as (file, line), in their order."""
    found: dict[tuple[str, int], None] = {}
    for node in graph.graph.nodes:
        every = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        frames = [frame for frame in every if frame[0] != PART_CALL]
        if frames:
            found[frames[-1][0], int(frames[-1][1])] = None
    return list(found)


def _broken_at(graph: GraphModule) -> tuple[str, int] | None:
    """Where the graph break is that ended a graph; None where it ends with its function, or torch does not say."""
    reason = getattr(graph, "compile_subgraph_reason", None)
    if not getattr(reason, "graph_break", False):
        return None
    own = users_frames(getattr(reason, "user_stack", []))
    return (own[-1].filename, own[-1].lineno) if own else None


def index(phase: str, captured: list[Captured], folder: Path) -> str:
    """A paragraph for each graph of a phase: the lines it was made of, the break after it, its files in `folder`."""
    paragraphs = []
    for graph in captured:
        own = rf"graph_{graph.number}(_.*)?\.(txt|py)"
        files = sorted(path.name for path in folder.iterdir() if re.fullmatch(own, path.name))
        said = [f"{phase}, graph {graph.number}", *(f"  made of {_line(place)}" for place in graph.lines)]
        said += [f"  broken at {_line(graph.broken_at)}"] if graph.broken_at else []
        paragraphs.append("\n".join([*said, *(f"  {folder.name}/{name}" for name in files)]) + "\n")
    return "\n".join(paragraphs)


def _line(place: tuple[str, int]) -> str:
    file, line = place
    return f"{shortened(file)}:{line}: {source_line(file, line)}"
