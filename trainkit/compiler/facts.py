"""What the compiler did, as torch itself counts it: the adapter to the names of torch._dynamo that tell.

All facts come from counters, records and callbacks, never from a log. Those that this torch has not make None
("unknown") of their facts, and the run goes on.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch
import torch._dynamo

from trainkit.compiler.dynamo import compiles, counted, known, told, variant_of
from trainkit.compiler.graph_breaks import break_sites, left_to_python
from trainkit.compiler.source import shortened
from trainkit.config.schema import CUDAGRAPH_MODES, CompileConfig
from trainkit.results.facts import GraphBreak, Region

Shapes = list[list[int]]  # of a batch's tensors
MAX_METRICS = 100_000  # torch keeps the last 64 compiles by default; a run with many shapes has more
WITHOUT_CUDAGRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
STAGES = ("capture", "differentiation", "lowering", "code generation", "autotuning")  # what one compile goes through
UNKNOWN = "this torch does not tell what it compiled"


@dataclass(frozen=True)
class CompileFacts:
    """What torch.compile did in one process; the fields are those of results.Row. None: this torch does not tell."""

    effective_mode: str | None
    effective_mode_reason: str | None
    num_graphs: int | None
    num_graph_breaks: int | None
    graph_breaks: list[GraphBreak] | None
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
    compiled_parts: list[Region] | None = None  # of the scopes parts and blocks


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
    parts: list[Region] | None = None
    skips: frozenset[str] = frozenset()


def begin() -> None:
    """Forget all compiled code and all counts of this process. Callbacks are dropped too."""
    torch._dynamo.reset()
    begin_counts()


def begin_counts() -> None:
    """Forget all counts; what was compiled stays."""
    known(lambda: torch._dynamo.utils.counters.clear())
    known(lambda: torch._dynamo.utils.clear_compilation_metrics())
    known(lambda: torch._dynamo.utils.set_compilation_metrics_limit(MAX_METRICS))


def listen(
    on_start: Callable[[str, str], None], on_end: Callable[[str], None], on_lookup: Callable[[bool], bool]
) -> Callable[[], None]:
    """Call back with its kind (of COMPILE_KINDS; at the start also the compile's id) around every outermost compile and
    every CUDA-graph recording, and, whenever a frame is looked for among its compiled variants, with whether one was
    found (`on_lookup` returns True); until the function that is returned is called. Without the name for it nothing is
    ever called back."""
    handler = known(lambda: torch._dynamo.callback.callback_handler)
    set_hook = _lookup_hook()

    def started(args: Any) -> None:
        compile_id = str(args.compile_id)
        on_start(_kind(args.callback_trigger.name, compile_id), variant_of(compile_id))

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
    return known(lambda: torch._dynamo.eval_frame.set_guard_complete_hook)


def tells_lookups() -> bool:
    """Whether this torch says which calls found no compiled variant."""
    return _lookup_hook() is not None


def _kind(trigger: str, compile_id: str) -> str:
    """`compile_id` is frame/variant, as in "0/1": every variant of a frame after the first is a recompile."""
    if trigger == "CUDAGRAPH_RECORDING":
        return "cudagraph"
    variant = variant_of(compile_id).rpartition("/")[2]
    if variant.isdigit() and int(variant) > 0:
        return "recompile"
    return "backward" if trigger == "LAZY_BACKWARD" else "forward"


def autotune_s() -> dict[str, float]:
    """Seconds spent on trying out kernels since `begin`: of them within compiles of each kind, and, as `autotune`,
    outside of all: Triton tries the variants of a kernel at its first launch, which calls nobody back."""
    spent: dict[str, float] = {}
    for metric in compiles() or []:
        if launched := told(metric, "runtime_triton_autotune_time_us"):
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
        trees = known(lambda: importlib.import_module("torch._inductor.cudagraph_trees"))
        told: Any = known(lambda: trees.log_cudagraph_skip_and_bump_counter)  # type: ignore[union-attr]

        def skipped(reason: str) -> None:
            heard.append(reason)
            told(reason)

        if told is not None:
            stack.enter_context(mock.patch.object(trees, "log_cudagraph_skip_and_bump_counter", skipped))
        yield heard


def num_graphs() -> int | None:
    """The graphs captured since `begin`."""
    return counted(("stats", "unique_graphs"))


def observe(config: CompileConfig, seen: Seen) -> CompileFacts:
    """What was compiled since `begin`, and the mode that took effect: `effective_mode` differs from the asked one
    where the network ran otherwise, in part (`mixed`) or as a whole, and the reason says why."""
    metrics, sites = compiles(), break_sites()
    again = None if metrics is None else [m for m in metrics if told(m, "recompile_reason")]
    limit_hit = None if metrics is None else any("recompile limit" in (told(m, "fail_reason") or "") for m in metrics)
    skips = None
    if metrics is not None:
        skips = seen.skips | {str(m.cudagraph_skip_reason) for m in metrics if told(m, "cudagraph_skip_reason")}
    hits = counted(("inductor", "fxgraph_cache_hit"), ("aot_autograd", "autograd_cache_hit"))
    misses = counted(("inductor", "fxgraph_cache_miss"), ("aot_autograd", "autograd_cache_miss"))
    facts = CompileFacts(
        effective_mode=None,
        effective_mode_reason=None,
        num_graphs=num_graphs(),
        num_graph_breaks=None if sites is None else len(sites),
        graph_breaks=sites,
        num_recompiles=None if again is None else len(again),
        recompiles=None if again is None else [shortened(str(m.recompile_reason).strip()) for m in again],
        recompile_shapes=None if again is None else [seen.shapes.get(variant_of(str(m.compile_id))) for m in again],
        recompile_times_s=None if again is None else [_seconds(str(m.compile_id)) for m in again],
        recompile_limit_hit=True if seen.over_budget else limit_hit,
        num_cudagraph_skips=counted(("inductor", "cudagraph_skips")),
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
    of = [m for m in compiles() or [] if str(m.compile_id) == compile_id]
    return sum(told(metric, "duration_us") or 0 for metric in of) / 1e6


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
        limit = known(lambda: torch._dynamo.config.recompile_limit)
        return "mixed", f"recompile limit ({limit}) reached: the variants after it ran uncompiled"
    if left := left_to_python(facts.graph_breaks or []):
        return "mixed", f"graph breaks leave to Python: {', '.join(left)}"
    if idle := [region.name for region in seen.parts or [] if region.num_calls == 0]:
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


def _cache_found(hits: int | None, misses: int | None) -> str | None:
    if not hits and not misses:
        return None
    return "cold" if not hits else "warm" if not misses else "mixed"


def stages_s() -> dict[str, float] | None:
    """Seconds of all compiles since `begin` by what they went into, one for each of STAGES; None: this torch does not
    tell. Torch's clocks are nested; here each has what is its own: capture is Dynamo without its backend,
    differentiation is AOTAutograd without inductor (of the backend eager: what that takes), lowering is inductor
    without code generation, which holds the C++ or Triton compiler that it waits for."""
    metrics = compiles()
    if metrics is None:
        return None
    spent = dict.fromkeys(STAGES, 0.0)
    for metric in metrics:
        clocks = ("dynamo", "aot_autograd", "backward", "inductor", "inductor_code_gen")
        dynamo, aot, backward, inductor, code = (
            (told(metric, f"{clock}_cumulative_compile_time_us") or 0) / 1e6 for clock in clocks
        )
        tried = (told(metric, "compile_time_autotune_time_us") or 0) / 1e6
        spent["capture"] += max(dynamo - aot, 0.0)
        spent["differentiation"] += max(aot + backward - inductor, 0.0)
        spent["lowering"] += max(inductor - code - tried, 0.0)
        spent["code generation"] += code
        spent["autotuning"] += tried + (told(metric, "runtime_triton_autotune_time_us") or 0) / 1e6
    return spent
