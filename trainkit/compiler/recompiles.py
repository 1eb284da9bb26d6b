"""Recompiles since the last reset: torch's reason for each, and its source location in the user's code."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import unwrap
from types import CodeType

from torch import nn

from trainkit.compiler import dynamo
from trainkit.compiler.dynamo import CompilationMetrics
from trainkit.compiler.regions import unwrapped
from trainkit.compiler.source import (
    REGION_CALL,
    TORCH,
    SourceLocation,
    is_trainkit_code,
    is_user_code,
    shortened,
    source_location,
)


@dataclass(frozen=True)
class Recompile:
    """A recompile of a frame. `reason` is torch's, on one line; `location` is the line that the reason names, else the
    first line of the function, and unknown for code that is not the user's. For the rest of a function after a graph
    break `broken_at` is the location of the break."""

    reason: str
    location: SourceLocation
    broken_at: SourceLocation | None = None


def read_recompiles(modules: Mapping[str, nn.Module]) -> list[Recompile]:
    """The recompiles, in the order of CompileFacts.recompiles. `modules` are the regions whose calls caused them, by
    the recompile's id: torch reports the frame that calls the region."""
    metrics = dynamo.compilation_metrics() or []
    first_of_frame: dict[str, CompilationMetrics] = {}  # torch has no location for a compile over the recompile limit
    for compiled in metrics:
        first_of_frame.setdefault(compiled.frame_id, compiled)
    found_recompiles = []
    for compiled in metrics:
        if compiled.recompile_reason:
            module = modules.get(compiled.variant_id)
            found_recompiles.append(_recompile(compiled.recompile_reason, first_of_frame[compiled.frame_id], module))
    return found_recompiles


def _recompile(reason: str, frame: CompilationMetrics, module: nn.Module | None) -> Recompile:
    guard = reason.partition("\nUser stack trace:")[0]
    return Recompile(shortened(" ".join(guard.split())), _location(reason, frame, module), _location_of_break(frame))


def _location(reason: str, frame: CompilationMetrics, module: nn.Module | None) -> SourceLocation:
    file, line = _line_in_reason(reason, frame.co_filename) or (frame.co_filename, frame.co_firstlineno)
    if file == REGION_CALL:
        code = None if module is None else _user_forward(module)
        return SourceLocation() if code is None else source_location(code.co_filename, code.co_firstlineno)
    if is_trainkit_code(file):  # the code that calls the network: a batch of another size, for example
        return SourceLocation()
    return source_location(file, line)


def _line_in_reason(reason: str, frame_file: str) -> tuple[str, int] | None:
    """File and line that torch names in its reason, with a path or with a shortened one."""
    quoted = re.findall(r'File "([^"]+)", line (\d+), in', reason)
    if quoted:
        file, line = quoted[-1]
        return file, int(line)
    comment = re.search(r"(\S+):(\d+) in ", reason)
    if comment is None:
        return None
    path = _full_path(comment[1], frame_file)
    return None if path is None else (path, int(comment[2]))


def _full_path(short_path: str, frame_file: str) -> str | None:
    """The file that torch names so in a guard's comment: the frame's, or that of another module of the user's."""
    if frame_file.endswith(short_path):
        return frame_file
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and is_user_code(file) and dynamo.shorten_filename(file) == short_path:
            return str(file)
    return None


def _user_forward(module: nn.Module) -> CodeType | None:
    """The code of a module's forward; None if it is torch's own or not written in Python."""
    code: CodeType | None = getattr(unwrap(type(unwrapped(module)).forward), "__code__", None)
    if code is None or code.co_filename.startswith(TORCH):
        return None
    return code


def _location_of_break(frame: CompilationMetrics) -> SourceLocation | None:
    """The graph break after which a frame is the rest of a function; None for any other frame."""
    resumed = dynamo.RESUMED.fullmatch(frame.co_name)
    if resumed is None or is_trainkit_code(frame.co_filename):
        return None
    return source_location(frame.co_filename, int(resumed[2]))
