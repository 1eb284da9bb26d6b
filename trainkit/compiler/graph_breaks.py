"""Graph breaks since the last reset, by their source locations in the user's code."""

import ast
import linecache
import re
from collections.abc import Iterable
from dataclasses import replace
from traceback import FrameSummary

from trainkit.compiler import dynamo
from trainkit.compiler.dynamo import BreakReason, CompilationMetrics
from trainkit.compiler.source import is_trainkit_code, is_user_code, source_location, user_location
from trainkit.results.facts import GraphBreak

NO_RESUME = "step_unsupported"  # torch's reason if it cannot continue after a break
BRANCH, BRANCH_ID = "Data-dependent branching", "GB0170"
BRANCH_OF_FRAME = "generic_jump "  # begins torch's reason for BRANCH in a function that is not traced inside of another
BACKEND_FAILED = "Backend compiler exception"
Location = tuple[str | None, int | None]  # file and line


def read_graph_breaks() -> list[GraphBreak] | None:
    """The distinct graph breaks in the user's code, in the order in which torch met them.

    `uncompiled` is set for a break inside of a loop, and for code that the backend fails on: of these torch keeps the
    metrics of the failed compile, and no reason. `uncompiled_after` is set for a break inside of a try or with, and for
    a break inside of a loop after another break.
    """
    reasons = dynamo.break_reasons()
    if reasons is None:
        return None
    breaks = _reported_breaks(reasons)
    for metrics in dynamo.compilation_metrics() or []:
        if metrics.fail_type != "Unsupported":
            continue
        if metrics.fail_reason.startswith(BACKEND_FAILED):
            breaks = [graph_break for graph_break in breaks if not _is_exit_of(graph_break, metrics)]
            breaks.append(_failed_compile(metrics, _quoted_location(metrics.fail_reason)))
        elif metrics.fail_user_frame_filename:
            location = metrics.fail_user_frame_filename, metrics.fail_user_frame_lineno
            breaks.append(_failed_compile(metrics, location))
    return _without_duplicates(breaks)


def left_to_python(breaks: Iterable[GraphBreak]) -> list[str]:
    """The functions that should be compiled and are left to Python for good, as a whole or from a line on."""
    whole, rests = [], []
    for graph_break in breaks:
        if graph_break.uncompiled:
            whole.append(graph_break.uncompiled)
        if graph_break.uncompiled_after:
            rests.append(f"{graph_break.uncompiled_after} after {graph_break.file}:{graph_break.line}")
    return list(dict.fromkeys(whole + rests))


def skips_function() -> bool:
    """Whether a function that should be compiled is left to Python for good, as a whole or in part."""
    return bool(left_to_python(read_graph_breaks() or []))


def _reported_breaks(reasons: list[BreakReason]) -> list[GraphBreak]:
    """The graph breaks that torch reports.

    If torch cannot continue after a break, it reports a second reason, NO_RESUME, at the last line before the break. If
    it has traced the function inside of another one before, it has reported the break itself too: then the two are one.
    Otherwise the last line before the break stands for it.
    """
    breaks = {reason: _graph_break(reason.reason, user_location(reason.user_stack)) for reason in reasons}
    for reason in reasons:
        if reason.reason != NO_RESUME or not reason.user_stack:
            continue
        last_frame = reason.user_stack[-1]
        break_itself = _break_after(last_frame, reasons)
        if break_itself is not None:
            del breaks[reason]
        cause = break_itself or reason
        breaks[cause] = replace(breaks[cause], uncompiled_after=_function_name(last_frame.name))
    return list(breaks.values())


def _break_after(frame: FrameSummary, reasons: list[BreakReason]) -> BreakReason | None:
    """The first break on a frame's line or after it in the same function, or in functions called there."""
    first_line = frame.lineno or 0
    last_line = _last_line_of_function(frame.filename, first_line)
    closest: tuple[int, BreakReason] | None = None
    for reason in reasons:
        if reason.reason == NO_RESUME:
            continue
        for caller in reason.user_stack:
            line = caller.lineno or 0
            is_after = caller.filename == frame.filename and first_line <= line <= last_line
            if is_after and (closest is None or line < closest[0]):
                closest = line, reason
    return None if closest is None else closest[1]


def _last_line_of_function(file: str, line: int) -> int:
    """The last line of the innermost function around a line; the line itself outside of functions."""
    functions = []
    for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            functions.append(node)
    if not functions:
        return line
    innermost = max(functions, key=lambda function: function.lineno)
    return innermost.end_lineno or line


def _failed_compile(metrics: CompilationMetrics, location: Location) -> GraphBreak:
    """The graph break for which a function, or the rest of one, was not compiled."""
    graph_break = _graph_break(metrics.fail_reason, location)
    function = _function_name(metrics.co_name)
    if dynamo.RESUMED.fullmatch(metrics.co_name):
        return replace(graph_break, uncompiled_after=function)
    return replace(graph_break, uncompiled=function)


def _is_exit_of(graph_break: GraphBreak, metrics: CompilationMetrics) -> bool:
    """Whether torch reported a break only because the backend failed on the rest of its function."""
    is_exit = graph_break.uncompiled_after == _function_name(metrics.co_name)
    return is_exit and graph_break.reason == NO_RESUME


def _quoted_location(reason: str) -> Location:
    """The innermost line of the user's in the traceback at the beginning of a reason."""
    traceback_text = reason.partition("Developer debug context")[0]
    for file, line in reversed(re.findall(r'File "([^"]+)", line (\d+)', traceback_text)):
        if is_user_code(file):
            return file, int(line)
    return None, None


def _function_name(name: str) -> str:
    """A function's name, also for the rest of the function after a break."""
    resumed = dynamo.RESUMED.fullmatch(name)
    if resumed is None:
        return name
    return resumed[1]


def _graph_break(reason: str, location: Location) -> GraphBreak:
    """The graph break for a reason of torch's: its summary, an explanation and a link to a page about its number."""
    file, line = location
    if file is not None and is_trainkit_code(file):  # the code that calls the network
        file = None
    source = source_location(file, line)
    lines = [text.strip() for text in reason.splitlines()] or [""]
    page = re.search(r"/gb(\d{4})\.html", reason)
    break_id = f"GB{page[1]}" if page else None
    explanation = next((text for text in lines if text.startswith("Explanation: ")), "")
    summary = lines[0]
    if summary.startswith(BRANCH_OF_FRAME):
        summary, break_id = BRANCH, BRANCH_ID
    return GraphBreak(
        file=source.file,
        line=source.line,
        reason=summary,
        id=break_id,
        explanation=explanation.removeprefix("Explanation: "),
        code=source.code,
    )


def _without_duplicates(breaks: list[GraphBreak]) -> list[GraphBreak]:
    """Each break once; one that leaves a function to Python in any of its occurrences does so."""
    distinct: dict[tuple[str | None, int | None, str], GraphBreak] = {}
    for graph_break in breaks:
        key = graph_break.file, graph_break.line, graph_break.reason
        first = distinct.setdefault(key, graph_break)
        distinct[key] = replace(
            first,
            explanation=first.explanation or graph_break.explanation,
            uncompiled=first.uncompiled or graph_break.uncompiled,
            uncompiled_after=first.uncompiled_after or graph_break.uncompiled_after,
        )
    return list(distinct.values())
