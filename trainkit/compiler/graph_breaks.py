"""Where graphs broke and frames were compiled anew, in the user's lines, as torch keeps it of the last compiles."""

import ast
import linecache
import re
import sys
from collections.abc import Mapping
from types import CodeType
from typing import Any

import torch
import torch._dynamo
from torch.utils._traceback import shorten_filename

from trainkit.compiler.dynamo import compiles, known, told, variant_of
from trainkit.compiler.source import PART_CALL, is_own, is_users, shortened, source_line, users_place
from trainkit.results.facts import GraphBreak

NO_RESUME = "step_unsupported"  # torch's reason where it cannot go on after a break
BACKEND_FAILED = "Backend compiler exception"
RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+)_at_(\d+)")  # torch's name for the rest of a function


def break_sites() -> list[GraphBreak] | None:
    """The distinct places in the user's code where a graph broke, in the order of their finding.

    `reason` is the first line of why, `id` torch's number for it ("GB0124"), `explanation` its next line, `code` the
    source line. `uncompiled` names the function that for this runs without torch.compile as a whole, as one with a
    break inside of a loop does, or what the backend fails on: of those torch keeps the record of the compile that
    failed, and no reason.
    `uncompiled_after` names the one that does so from this place on, as after a break inside of a try or with, and as
    the rest of a function does that breaks inside of a loop after another break.
    """
    reasons, metrics = known(lambda: list(torch._dynamo.utils.graph_break_reasons)), compiles()
    if reasons is None:
        return None
    sites = _told_sites([reason for reason in reasons if reason.graph_break])
    for metric in metrics or []:
        reason, name = str(told(metric, "fail_reason")), str(metric.co_name)
        place = (told(metric, "fail_user_frame_filename"), told(metric, "fail_user_frame_lineno"))
        refused = reason.startswith(BACKEND_FAILED)
        if told(metric, "fail_type") == "Unsupported" and (place[0] or refused):
            if refused:  # torch quotes the line, and gives the way out of its function as a break
                place = _quoted(reason)
                sites = [s for s in sites if s["reason"] != NO_RESUME or s["uncompiled_after"] != _function(name)]
            left = "uncompiled_after" if RESUMED.fullmatch(name) else "uncompiled"
            sites.append(_site(reason, place) | {left: _function(name)})
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for site in sites:
        first = found.setdefault((site["file"], site["line"], site["reason"]), site)
        for name in ("uncompiled", "uncompiled_after"):
            first[name] = first[name] or site[name]
    return [GraphBreak(**site) for site in found.values()]


def _quoted(reason: str) -> tuple[str | None, int | None]:
    """The innermost place of the user's in the traceback that a reason begins with."""
    quoted = re.findall(r'File "([^"]+)", line (\d+)', reason.partition("Developer debug context")[0])
    return next(((file, int(line)) for file, line in reversed(quoted) if is_users(file)), (None, None))


def _told_sites(broken: list[Any]) -> list[dict[str, Any]]:
    """The sites of torch's reasons. Where it cannot go on after a break it gives as a reason of its own the last place
    before that; the break itself it tells where the function was first traced as a part of another one. Then the two
    are one site, else the place stands for it."""
    sites = {id(reason): _site(str(reason.reason), users_place(reason.user_stack)) for reason in broken}
    for left in (reason for reason in broken if reason.reason == NO_RESUME and reason.user_stack):
        place = left.user_stack[-1]
        its_break = _break_from(place, broken)
        sites[id(its_break or left)]["uncompiled_after"] = _function(place.name)
        if its_break is not None:
            del sites[id(left)]
    return list(sites.values())


def _break_from(place: Any, broken: list[Any]) -> Any:
    """The first break at a place or after it in the same function, or in what is called from there; None: not told."""
    tree = ast.parse("".join(linecache.getlines(place.filename)))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [function for function in functions if function.lineno <= place.lineno <= (function.end_lineno or 0)]
    last = max(around, key=lambda function: function.lineno).end_lineno if around else place.lineno
    within = [
        (frame.lineno, number)
        for number, reason in enumerate(broken)
        for frame in reason.user_stack
        if reason.reason != NO_RESUME and frame.filename == place.filename and place.lineno <= frame.lineno <= last
    ]
    return broken[min(within)[1]] if within else None


def _function(name: str) -> str:
    """A function's name, also where torch has given one to the rest of it."""
    resumed = RESUMED.fullmatch(name)
    return resumed[1] if resumed else name


def left_to_python(graph_breaks: list[GraphBreak]) -> list[str]:
    """The functions that were to be compiled and are left to Python for good, as a whole or from a place on."""
    whole = [site.uncompiled for site in graph_breaks if site.uncompiled]
    rests = [f"{site.uncompiled_after} after {site.file}:{site.line}" for site in graph_breaks if site.uncompiled_after]
    return list(dict.fromkeys(whole + rests))


def skips_function() -> bool:
    """Whether a function that was to be compiled is left to Python for good, as a whole or in part."""
    return bool(left_to_python(break_sites() or []))


def recompile_sites(parts: Mapping[str, CodeType | None]) -> list[dict[str, Any]]:
    """What made frames be compiled anew since facts.begin, in the order of CompileFacts.recompiles: `reason` (torch's
    words, on one line), and the user's line that it names, or else the function's first. `parts`, by the compile's id:
    what the user wrote of a part that is compiled by itself, of which torch knows the frame that calls it; None for
    what is torch's, which has no line of the user's. `broken_at`: of the rest of a function, the place (file, line,
    code) of the graph break before it. What is trainkit's has neither."""
    sites, metrics = [], compiles() or []
    # Of a compile that the recompile limit forbids torch has no place: it is that of the frame's first one.
    frames = {_frame(metric): metric for metric in reversed(metrics)}
    for metric in metrics:
        if not told(metric, "recompile_reason"):
            continue
        words, frame = str(metric.recompile_reason), frames[_frame(metric)]
        named = re.findall(r'File "([^"]+)", line (\d+), in', words)
        file, line = frame.co_filename, frame.co_firstlineno
        if named:
            file, line = named[-1][0], int(named[-1][1])
        elif (short := re.search(r"(\S+):(\d+) in ", words)) and (whole := _whole(short[1], file)):
            file, line = whole, int(short[2])
        if file == PART_CALL:
            code = parts.get(variant_of(str(metric.compile_id)))
            file, line = (code.co_filename, code.co_firstlineno) if code else (None, None)
        elif is_own(file):  # what calls the network: a batch of another size, say
            file, line = None, None
        sites.append(
            {
                "file": None if file is None else shortened(file),
                "line": line,
                "reason": shortened(" ".join(words.partition("\nUser stack trace:")[0].split())),
                "code": source_line(file, line),
                "broken_at": _broken_at(frame),
            }
        )
    return sites


def _whole(short: str, frames: str) -> str | None:
    """The file that torch names so in a guard's comment: that of the frame, or of another module of the user's."""
    if frames.endswith(short):
        return frames
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return next((file for file in files if file and is_users(file) and shorten_filename(file) == short), None)


def _frame(metric: Any) -> str:
    return str(metric.compile_id).partition("/")[0]


def _broken_at(metric: Any) -> dict[str, Any] | None:
    """The place of the graph break after which a frame is the rest of a function; None of any other frame."""
    resumed = RESUMED.fullmatch(str(metric.co_name))
    if resumed is None or is_own(metric.co_filename):
        return None
    line = int(resumed[2])
    return {"file": shortened(metric.co_filename), "line": line, "code": source_line(metric.co_filename, line)}


def _site(reason: str, place: tuple[str | None, int | None]) -> dict[str, Any]:
    file, line = (None, None) if is_own(place[0] or "") else place  # what calls the network
    lines = [words.strip() for words in reason.splitlines()] or [""]
    number = re.search(r"/gb(\d{4})\.html", reason)
    explanation = next((words for words in lines if words.startswith("Explanation: ")), "")
    return {
        "file": None if file is None else shortened(file),
        "line": line,
        "reason": lines[0],
        "id": f"GB{number[1]}" if number else None,
        "explanation": explanation.removeprefix("Explanation: "),
        "code": source_line(file, line),
        "uncompiled": None,
        "uncompiled_after": None,
    }
