"""What the compiler did, as torch itself counts it: the adapter to the names of torch._dynamo that tell.

All facts come from counters, records and callbacks, never from a log. Most of those names are private: one that is gone
in another torch makes its facts None ("unknown"), and the run goes on.
"""

import ast
import importlib
import linecache
import os
import re
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar
from unittest import mock

import torch
import torch._dynamo

from trainkit.config import CUDAGRAPH_MODES, CompileConfig

T = TypeVar("T")
Shapes = list[list[int]]  # of a batch's tensors
KINDS = ("forward", "backward", "autotune", "cudagraph", "recompile")  # what compile seconds go into
MAX_METRICS = 100_000  # torch keeps the last 64 compiles by default; a run with many shapes has more
WITHOUT_CUDAGRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
STAGES = ("capture", "differentiation", "lowering", "code generation", "autotuning")  # what one compile goes through
TORCH = str(Path(torch.__file__).parent)
PART_CALL = str(Path(__file__).with_name("compile.py"))  # whose frame calls a part that is compiled by itself
NOT_THE_USERS = sysconfig.get_path("stdlib")
UNKNOWN = "this torch does not tell what it compiled"
NO_RESUME = "step_unsupported"  # torch's reason where it cannot go on after a break


@dataclass(frozen=True)
class CompileFacts:
    """What torch.compile did in one process; the fields are those of results.Row. None: this torch does not tell."""

    effective_mode: str | None
    effective_mode_reason: str | None
    num_graphs: int | None
    num_graph_breaks: int | None
    graph_breaks: list[dict[str, Any]] | None
    num_recompiles: int | None
    recompiles: list[str] | None
    recompile_shapes: list[Shapes | None] | None
    recompile_times_s: list[float] | None
    recompile_limit_hit: bool | None
    num_cudagraph_skips: int | None
    cudagraph_skips: list[str] | None
    num_cudagraphs: int | None
    cache_hits: int | None
    cache_misses: int | None
    cache_found: str | None
    compiled_parts: list[dict[str, Any]] | None = None  # of the scopes parts and blocks


@dataclass(frozen=True)
class Seen:
    """What a Compiler saw for itself; all else torch counts. The modes of what was compiled; what made the network go
    on uncompiled; of each recompile, by its id, the shapes of the batch that brought it; whether anything ran
    uncompiled once `max_recompiles` was reached; what each part came to; the reasons of `hearing_skips`."""

    modes: frozenset[str]
    num_cudagraphs: int = 0
    error: str | None = None
    shapes: dict[str, Shapes] = field(default_factory=dict)
    over_budget: bool = False
    parts: list[dict[str, Any]] | None = None
    skips: frozenset[str] = frozenset()


def begin() -> None:
    """Forget all compiled code and all counts of this process. Callbacks are dropped too."""
    torch._dynamo.reset()
    begin_counts()


def begin_counts() -> None:
    """Forget all counts; what was compiled stays."""
    _known(lambda: torch._dynamo.utils.counters.clear())
    _known(lambda: torch._dynamo.utils.clear_compilation_metrics())
    _known(lambda: torch._dynamo.utils.set_compilation_metrics_limit(MAX_METRICS))


def listen(
    on_start: Callable[[str, str], None], on_end: Callable[[str], None], on_lookup: Callable[[bool], bool]
) -> Callable[[], None]:
    """Call back with its kind (one of KINDS; at the start also the compile's id) around every outermost compile and
    every CUDA-graph recording, and, whenever a frame is looked for among its compiled variants, with whether one was
    found (`on_lookup` returns True); until the function that is returned is called. Without the name for it nothing is
    ever called back."""
    handler = _known(lambda: torch._dynamo.callback.callback_handler)
    set_hook = _lookup_hook()

    def started(args: Any) -> None:
        compile_id = str(args.compile_id)
        on_start(_kind(args.callback_trigger.name, compile_id), _variant(compile_id))

    def ended(args: Any) -> None:
        on_end(_kind(args.callback_trigger.name, str(args.compile_id)))

    def stop() -> None:
        if set_hook is not None:
            set_hook(None)
        if handler is not None and started in handler.start_callbacks:  # a dynamo.reset() of the user's drops them
            handler.remove_start_callback(started)
            handler.remove_end_callback(ended)

    if set_hook is not None:
        set_hook(on_lookup)
    if handler is not None:
        handler.register_start_callback(started)
        handler.register_end_callback(ended)
    return stop


def _lookup_hook() -> Callable[[Any], Any] | None:
    return _known(lambda: torch._dynamo.eval_frame.set_guard_complete_hook)


def tells_lookups() -> bool:
    """Whether this torch says which calls found no compiled variant."""
    return _lookup_hook() is not None


def _variant(compile_id: str) -> str:
    """The frame and its variant: "0/1_2" is the second restart of the compile 0/1."""
    return compile_id.partition("_")[0]


def _kind(trigger: str, compile_id: str) -> str:
    """`compile_id` is frame/variant, as in "0/1": every variant of a frame after the first is a recompile."""
    if trigger == "CUDAGRAPH_RECORDING":
        return "cudagraph"
    variant = _variant(compile_id).rpartition("/")[2]
    if variant.isdigit() and int(variant) > 0:
        return "recompile"
    return "backward" if trigger == "LAZY_BACKWARD" else "forward"


def autotune_s() -> dict[str, float]:
    """Seconds spent on trying out kernels since `begin`: of them within compiles of each kind, and, as `autotune`,
    outside of all: Triton tries the variants of a kernel at its first launch, which calls nobody back."""
    spent: dict[str, float] = {}
    for metric in _metrics() or []:
        if launched := _has(metric, "runtime_triton_autotune_time_us"):
            spent["autotune"] = spent.get("autotune", 0.0) + launched / 1e6
        if microseconds := getattr(metric, "compile_time_autotune_time_us", None):
            trigger = "LAZY_BACKWARD" if getattr(metric, "is_forward", None) is False else "DYNAMO"
            kind = _kind(trigger, str(metric.compile_id))
            spent[kind] = spent.get(kind, 0.0) + microseconds / 1e6
    return spent


@contextmanager
def hearing_skips() -> Iterator[list[str]]:
    """Within it the list gets torch's reason whenever a CUDA graph is skipped while the network runs (an input that is
    written to, too many recordings): of these torch has the count in its counters and the reason in no record."""
    heard: list[str] = []
    with ExitStack() as stack:
        trees = _known(lambda: importlib.import_module("torch._inductor.cudagraph_trees"))
        told: Any = _known(lambda: trees.log_cudagraph_skip_and_bump_counter)  # type: ignore[union-attr]

        def skipped(reason: str) -> None:
            heard.append(reason)
            told(reason)

        if told is not None:
            stack.enter_context(mock.patch.object(trees, "log_cudagraph_skip_and_bump_counter", skipped))
        yield heard


def num_graphs() -> int | None:
    """The graphs captured since `begin`."""
    return _sum(("stats", "unique_graphs"))


def observe(config: CompileConfig, seen: Seen) -> CompileFacts:
    """What was compiled since `begin`, and the mode that took effect: `effective_mode` differs from the asked one
    where the network ran otherwise, in part (`mixed`) or as a whole, and the reason says why."""
    metrics, sites = _metrics(), _break_sites()
    again = None if metrics is None else [m for m in metrics if _has(m, "recompile_reason")]
    limit_hit = None if metrics is None else any("recompile limit" in (_has(m, "fail_reason") or "") for m in metrics)
    skips = None
    if metrics is not None:
        skips = seen.skips | {str(m.cudagraph_skip_reason) for m in metrics if _has(m, "cudagraph_skip_reason")}
    hits = _sum(("inductor", "fxgraph_cache_hit"), ("aot_autograd", "autograd_cache_hit"))
    misses = _sum(("inductor", "fxgraph_cache_miss"), ("aot_autograd", "autograd_cache_miss"))
    facts = CompileFacts(
        effective_mode=None,
        effective_mode_reason=None,
        num_graphs=num_graphs(),
        num_graph_breaks=None if sites is None else len(sites),
        graph_breaks=sites,
        num_recompiles=None if again is None else len(again),
        recompiles=None if again is None else [shortened(str(m.recompile_reason).strip()) for m in again],
        recompile_shapes=None if again is None else [seen.shapes.get(_variant(str(m.compile_id))) for m in again],
        recompile_times_s=None if again is None else [_seconds(str(m.compile_id)) for m in again],
        recompile_limit_hit=True if seen.over_budget else limit_hit,
        num_cudagraph_skips=_sum(("inductor", "cudagraph_skips")),
        cudagraph_skips=None if skips is None else sorted(map(shortened, skips)),
        num_cudagraphs=seen.num_cudagraphs,
        cache_hits=hits,
        cache_misses=misses,
        cache_found=_cache_found(hits, misses),
        compiled_parts=seen.parts,
    )
    mode, reason = _effective(config, seen, facts)
    return replace(facts, effective_mode=mode, effective_mode_reason=reason)


def _seconds(compile_id: str) -> float:
    """What one variant took to compile, its backward included."""
    of = [m for m in _metrics() or [] if str(m.compile_id) == compile_id]
    return sum(_has(metric, "duration_us") or 0 for metric in of) / 1e6


def _effective(config: CompileConfig, seen: Seen, facts: CompileFacts) -> tuple[str | None, str | None]:
    """The mode that took effect, and why it is another than the one asked for (None where it is the same)."""
    asked = config.mode.value
    if asked == "eager":
        return asked, None
    if seen.error:
        mode = "mixed" if facts.num_graphs else "eager"
        return mode, f"could not be compiled, went on uncompiled (compile.on_error=eager): {seen.error}"
    if facts.num_graphs is None:
        return None, UNKNOWN
    if facts.num_graphs == 0:
        return "eager", "nothing was compiled"
    if seen.over_budget:
        return "mixed", f"compile.max_recompiles ({config.max_recompiles}) reached: what came after it ran uncompiled"
    if facts.recompile_limit_hit:
        limit = _known(lambda: torch._dynamo.config.recompile_limit)
        return "mixed", f"recompile limit ({limit}) reached: the variants after it ran uncompiled"
    if left := _left_to_python(facts.graph_breaks or []):
        return "mixed", f"graph breaks leave to Python: {', '.join(left)}"
    if idle := [part["name"] for part in seen.parts or [] if part["num_calls"] == 0]:
        return "mixed", f"never called by themselves: {', '.join(idle)}"
    if seen.modes.isdisjoint(CUDAGRAPH_MODES):
        return asked, None
    if facts.num_cudagraph_skips is None:
        return None, UNKNOWN
    if facts.num_cudagraph_skips == 0 and facts.num_cudagraphs:
        return asked, None
    why = ", ".join(facts.cudagraph_skips or []) or "CUDA graphs need a CUDA device" * (not torch.cuda.is_available())
    if facts.num_cudagraphs:
        return "mixed", f"CUDA graphs skipped {facts.num_cudagraph_skips} times: {why or 'no reason given by torch'}"
    effective = WITHOUT_CUDAGRAPHS[asked] if seen.modes == {asked} else "mixed"
    return effective, f"CUDA graphs did not take effect: {why or 'none was recorded'}"


def combined(ranks: list[CompileFacts]) -> CompileFacts:
    """The facts of all ranks as one: rank 0's, and where the ranks' effective modes differ, that."""
    if len({facts.effective_mode for facts in ranks}) == 1:
        return ranks[0]
    modes = ", ".join(f"rank {rank} {facts.effective_mode}" for rank, facts in enumerate(ranks))
    return replace(ranks[0], effective_mode="mixed", effective_mode_reason=f"the ranks differ: {modes}")


def _known(read: Callable[[], T]) -> T | None:
    """What `read` gives, or None where this torch has not the name that it reads."""
    try:
        return read()
    except (AttributeError, ImportError):
        return None


def _metrics() -> list[Any] | None:
    return _known(lambda: list(torch._dynamo.utils.get_compilation_metrics()))


def _has(record: Any, name: str) -> Any:
    return getattr(record, name, None)


def _sum(*names: tuple[str, str]) -> int | None:
    counters = _known(lambda: torch._dynamo.utils.counters)
    return None if counters is None else sum(counters[group][name] for group, name in names)


def _cache_found(hits: int | None, misses: int | None) -> str | None:
    if not hits and not misses:
        return None
    return "cold" if not hits else "warm" if not misses else "mixed"


def _break_sites() -> list[dict[str, Any]] | None:
    """The distinct places in the user's code where a graph broke, in the order of their finding.

    `reason` is the first line of why, `id` torch's number for it ("GB0124"), `explanation` its next line, `code` the
    source line. `uncompiled` names the function that for this runs without torch.compile as a whole, as one with a
    break inside of a loop does: of those torch keeps the record of the compile that failed, and no reason.
    `uncompiled_after` names the one that does so from this place on, as after a break inside of a try or with, and as
    the rest of a function does that breaks inside of a loop after another break.
    """
    reasons, metrics = _known(lambda: list(torch._dynamo.utils.graph_break_reasons)), _metrics()
    if reasons is None:
        return None
    sites = _told_sites([reason for reason in reasons if reason.graph_break])
    for metric in metrics or []:
        if _has(metric, "fail_type") == "Unsupported" and _has(metric, "fail_user_frame_filename"):
            place = (metric.fail_user_frame_filename, metric.fail_user_frame_lineno)
            name = str(metric.co_name)
            left = "uncompiled" if name == _function(name) else "uncompiled_after"
            sites.append(_site(str(metric.fail_reason), place) | {left: _function(name)})
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for site in sites:
        first = found.setdefault((site["file"], site["line"], site["reason"]), site)
        for name in ("uncompiled", "uncompiled_after"):
            first[name] = first[name] or site[name]
    return list(found.values())


def _told_sites(broken: list[Any]) -> list[dict[str, Any]]:
    """The sites of torch's reasons. Where it cannot go on after a break it gives as a reason of its own the last place
    before that; the break itself it tells where the function was first traced as a part of another one. Then the two
    are one site, else the place stands for it."""
    sites = {id(reason): _site(str(reason.reason), _users(reason.user_stack)) for reason in broken}
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
    resumed = re.fullmatch(r"torch_dynamo_resume_in_(\w+)_at_\d+", name)
    return resumed[1] if resumed else name


def _left_to_python(sites: list[dict[str, Any]]) -> list[str]:
    """The functions that were to be compiled and are left to Python for good, as a whole or from a place on."""
    whole = [site["uncompiled"] for site in sites if site["uncompiled"]]
    rests = [s["uncompiled_after"] + f" after {s['file']}:{s['line']}" for s in sites if s["uncompiled_after"]]
    return list(dict.fromkeys(whole + rests))


def skips_function() -> bool:
    """Whether a function that was to be compiled is left to Python for good, as a whole or in part."""
    return bool(_left_to_python(_break_sites() or []))


def users_frames(stack: Any) -> list[Any]:
    """The frames that are neither Python's own library nor torch, innermost last: what the user can change."""
    own = [
        frame for frame in stack if not frame.filename.startswith(NOT_THE_USERS) or "site-packages" in frame.filename
    ]
    return [frame for frame in own if not frame.filename.startswith((TORCH, PART_CALL))]


def _users(stack: Any) -> tuple[str | None, int | None]:
    """The innermost place that the user can change; where there is none, the innermost one."""
    own = users_frames(stack) or list(stack)
    return (own[-1].filename, own[-1].lineno) if own else (None, None)


def _site(reason: str, place: tuple[str | None, int | None]) -> dict[str, Any]:
    file, line = place
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


def shortened(text: str) -> str:
    """Paths in the working directory as they are from there: rows are read elsewhere."""
    return text.replace(f"{Path.cwd()}{os.sep}", "")


def source_line(file: str | None, line: int | None) -> str:
    """A line of source without its indentation; "" where it cannot be read."""
    return linecache.getline(file, line).strip() if file and line else ""


def recompile_sites(parts: Mapping[str, CodeType | None]) -> list[dict[str, Any]]:
    """What made frames be compiled anew since `begin`, in the order of CompileFacts.recompiles: `reason` (torch's
    words, on one line), and the user's line that it names, or else the function's first. `parts`, by the compile's id:
    what the user wrote of a part that is compiled by itself, of which torch knows the frame that calls it; None for
    what is torch's, which has no line of the user's. `broken_at`: of the rest of a function, the place (file, line,
    code) of the graph break before it."""
    sites, metrics = [], _metrics() or []
    # Of a compile that the recompile limit forbids torch has no place: it is that of the frame's first one.
    frames = {_frame(metric): metric for metric in reversed(metrics)}
    for metric in metrics:
        if not _has(metric, "recompile_reason"):
            continue
        words, frame = str(metric.recompile_reason), frames[_frame(metric)]
        named = re.findall(r'File "([^"]+)", line (\d+), in', words)
        file, line = frame.co_filename, frame.co_firstlineno
        if named:
            file, line = named[-1][0], int(named[-1][1])
        elif (short := re.search(r"(\S+):(\d+) in ", words)) and file.endswith(short[1]):
            line = int(short[2])
        if file == PART_CALL:
            code = parts.get(_variant(str(metric.compile_id)))
            file, line = (code.co_filename, code.co_firstlineno) if code else (None, None)
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


def _frame(metric: Any) -> str:
    return str(metric.compile_id).partition("/")[0]


def _broken_at(metric: Any) -> dict[str, Any] | None:
    """The place of the graph break after which a frame is the rest of a function; None of any other frame."""
    resumed = re.fullmatch(r"torch_dynamo_resume_in_\w+_at_(\d+)", str(metric.co_name))
    if resumed is None:
        return None
    line = int(resumed[1])
    return {"file": shortened(metric.co_filename), "line": line, "code": source_line(metric.co_filename, line)}


def stages_s() -> dict[str, float] | None:
    """Seconds of all compiles since `begin` by what they went into, one for each of STAGES; None: this torch does not
    tell. Torch's clocks are nested; here each has what is its own: capture is Dynamo without its backend,
    differentiation is AOTAutograd without inductor (of the backend eager: what that takes), lowering is inductor
    without code generation, which holds the C++ or Triton compiler that it waits for."""
    metrics = _metrics()
    if metrics is None:
        return None
    spent = dict.fromkeys(STAGES, 0.0)
    for metric in metrics:
        clocks = ("dynamo", "aot_autograd", "backward", "inductor", "inductor_code_gen")
        dynamo, aot, backward, inductor, code = (
            (_has(metric, f"{clock}_cumulative_compile_time_us") or 0) / 1e6 for clock in clocks
        )
        tried = (_has(metric, "compile_time_autotune_time_us") or 0) / 1e6
        spent["capture"] += max(dynamo - aot, 0.0)
        spent["differentiation"] += max(aot + backward - inductor, 0.0)
        spent["lowering"] += max(inductor - code - tried, 0.0)
        spent["code generation"] += code
        spent["autotuning"] += tried + (_has(metric, "runtime_triton_autotune_time_us") or 0) / 1e6
    return spent
