"""Facts about compiles, as torch itself counts them: from counters, metrics and callbacks, never from a log.

Facts that this torch does not report are None ("unknown").
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import torch

from trainkit.compiler import dynamo, inductor
from trainkit.compiler.dynamo import CompilationMetrics
from trainkit.compiler.graph_breaks import left_to_python, read_graph_breaks
from trainkit.compiler.observer import Shapes, compile_kind
from trainkit.compiler.private_names import find
from trainkit.compiler.regions import CompiledRegion
from trainkit.compiler.source import shortened
from trainkit.config.schema import AUTOTUNE_MODES, CUDAGRAPH_MODES, CompileConfig
from trainkit.results.effective import CompileFacts
from trainkit.results.facts import GraphSize, Region, TunedKernel

WITHOUT_CUDAGRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
STAGES = ("capture", "differentiation", "lowering", "code generation", "autotuning")  # of one compile
UNKNOWN = "this torch does not report what it compiled"


@dataclass(frozen=True)
class Observations:
    """A Compiler's own observations, beside torch's counts.

    modes: of the compiled regions, or of the whole objective. error: why it went on uncompiled. recompile_shapes: of
    the batch that caused a recompile, by the recompile's id. over_budget: something ran uncompiled after
    `max_recompiles`. unsettled: which calls a policy still lets run uncompiled. cudagraph_skips: reasons of the skips
    in calls. tuned: the fastest kernel of each operation that was autotuned.
    """

    modes: frozenset[str]
    num_cudagraphs: int = 0
    error: str | None = None
    recompile_shapes: dict[str, Shapes] = field(default_factory=dict)
    over_budget: bool = False
    unsettled: str | None = None
    regions: list[CompiledRegion] = field(default_factory=list)
    cudagraph_skips: frozenset[str] = frozenset()
    tuned: list[TunedKernel] = field(default_factory=list)


def collect(config: CompileConfig, observed: Observations) -> CompileFacts:
    """The facts since the last reset, with the mode that took effect. `effective_mode` differs from the
    requested one if the network ran otherwise, in part (`mixed`) or as a whole, and the reason says why."""
    breaks = read_graph_breaks()
    num_graph_breaks = None if breaks is None else len(breaks)
    metrics = dynamo.compilation_metrics()
    hits = dynamo.count(("inductor", "fxgraph_cache_hit"), ("aot_autograd", "autograd_cache_hit"))
    misses = dynamo.count(("inductor", "fxgraph_cache_miss"), ("aot_autograd", "autograd_cache_miss"))
    facts = CompileFacts(
        num_graphs=dynamo.num_graphs(),
        num_graph_breaks=num_graph_breaks,
        graph_breaks=breaks,
        recompile_limit_hit=observed.over_budget or None,
        num_cudagraph_skips=dynamo.count(("inductor", "cudagraph_skips")),
        num_cudagraphs=observed.num_cudagraphs,
        cache_hits=hits,
        cache_misses=misses,
        cache_found=_cache_found(hits, misses),
        tuned_kernels=_tuned_kernels(observed, misses),
        before_inductor_s=_before_inductor_s(),
        compiled_parts=[_region(region, observed.regions) for region in observed.regions] or None,
    )
    if metrics is not None:
        facts = _with_metrics(facts, metrics, observed)
    mode, reason = _effective_mode(config, observed, facts)
    return replace(facts, effective_mode=mode, effective_mode_reason=reason)


def _with_metrics(facts: CompileFacts, metrics: list[CompilationMetrics], observed: Observations) -> CompileFacts:
    reasons, shapes, times_s = [], [], []
    graph_sizes = []
    limit_hit = observed.over_budget
    skips = set(observed.cudagraph_skips)
    for compiled in metrics:
        if compiled.recompile_reason:
            reasons.append(shortened(compiled.recompile_reason.strip()))
            shapes.append(observed.recompile_shapes.get(compiled.variant_id))
            times_s.append(_variant_s(compiled.compile_id, metrics))
        if compiled.graph_op_count is not None and compiled.graph_input_count is not None:
            graph_sizes.append(GraphSize(compiled.graph_op_count, compiled.graph_input_count))
        if "recompile limit" in compiled.fail_reason:
            limit_hit = True
        if compiled.cudagraph_skip_reason:
            skips.add(compiled.cudagraph_skip_reason)
    return replace(
        facts,
        graph_sizes=graph_sizes,
        num_recompiles=len(reasons),
        recompiles=reasons,
        recompile_shapes=shapes,
        recompile_times_s=times_s,
        recompile_limit_hit=limit_hit,
        cudagraph_skips=sorted(shortened(skip) for skip in skips),
    )


def _variant_s(compile_id: str, metrics: list[CompilationMetrics]) -> float:
    """Seconds of one variant's compile, its backward included."""
    return sum(compiled.duration_us for compiled in metrics if compiled.compile_id == compile_id) / 1e6


def _tuned_kernels(observed: Observations, cache_misses: int | None) -> list[TunedKernel] | None:
    """The kernels of the operations that this process autotuned; None if it tuned none because its graphs are from the
    cache, or without autotuning."""
    if observed.modes.isdisjoint(AUTOTUNE_MODES) or not inductor.reports_autotuning():
        return None
    if not observed.tuned and not cache_misses:
        return None
    counts = Counter((kernel.operation, kernel.kernel) for kernel in observed.tuned)
    return [TunedKernel(operation, kernel, counts[operation, kernel]) for operation, kernel in sorted(counts)]


def _cache_found(hits: int | None, misses: int | None) -> str | None:
    if not hits and not misses:
        return None
    if not hits:
        return "cold"
    if not misses:
        return "warm"
    return "mixed"


def _region(region: CompiledRegion, regions: list[CompiledRegion]) -> Region:
    """A region as the row has it."""
    config = region.target.config
    return Region(
        name=region.target.name,
        mode=config.mode,
        dynamic=config.dynamic,
        fullgraph=config.fullgraph,
        backend=config.backend,
        num_graphs=region.num_graphs,
        reused=_reuses_graphs(region, regions),
        num_calls=region.num_calls,
    )


def _reuses_graphs(region: CompiledRegion, regions: list[CompiledRegion]) -> bool:
    """Whether a region has no graphs of its own and ran those of another one."""
    if region.num_graphs != 0 or region.code is None:
        return False
    return any(other.code is region.code and other.num_graphs for other in regions)


def _effective_mode(
    config: CompileConfig, observed: Observations, facts: CompileFacts
) -> tuple[str | None, str | None]:
    """The mode that took effect, and the reason if it is not the requested one."""
    if config.mode == "eager":
        return config.mode, None
    if observed.error:
        mode = "mixed" if facts.num_graphs else "eager"
        return mode, f"could not be compiled, went on uncompiled (compile.on_error=eager): {observed.error}"
    if facts.num_graphs is None:
        return None, UNKNOWN
    if facts.num_graphs == 0:
        return "eager", observed.unsettled or "nothing was compiled"
    partly = _uncompiled_part(config, observed, facts)
    if partly is not None:
        return "mixed", partly
    if observed.modes.isdisjoint(CUDAGRAPH_MODES):
        return config.mode, None
    return _cudagraph_mode(config, observed, facts)


def _uncompiled_part(config: CompileConfig, observed: Observations, facts: CompileFacts) -> str | None:
    """Why a part of the network ran uncompiled; None if all of it ran compiled."""
    if observed.over_budget:
        return f"compile.max_recompiles ({config.max_recompiles}) reached: what came after it ran uncompiled"
    if observed.unsettled:
        return observed.unsettled
    if facts.recompile_limit_hit:
        return f"recompile limit ({find('recompile_limit')}) reached: the variants after it ran uncompiled"
    functions = left_to_python(facts.graph_breaks or [])
    if functions:
        return f"graph breaks leave to Python: {', '.join(functions)}"
    idle = [region.target.name for region in observed.regions if region.num_calls == 0]
    if idle:
        return f"never called by themselves: {', '.join(idle)}"
    return None


def _cudagraph_mode(
    config: CompileConfig, observed: Observations, facts: CompileFacts
) -> tuple[str | None, str | None]:
    """The effective mode of a network that should run in CUDA graphs."""
    requested = config.mode
    if facts.num_cudagraph_skips is None:
        return None, UNKNOWN
    if facts.num_cudagraph_skips == 0 and facts.num_cudagraphs:
        return requested, None
    reasons = ", ".join(facts.cudagraph_skips or [])
    if not reasons and not torch.cuda.is_available():
        reasons = "CUDA graphs need a CUDA device"
    if facts.num_cudagraphs:
        reason = reasons or "no reason given by torch"
        return "mixed", f"CUDA graphs skipped {facts.num_cudagraph_skips} times: {reason}"
    mode = WITHOUT_CUDAGRAPHS[requested] if observed.modes == {requested} else "mixed"
    return mode, f"CUDA graphs did not take effect: {reasons or 'none was recorded'}"


def combined(ranks: list[CompileFacts]) -> CompileFacts:
    """The facts of all ranks as one: rank 0's, and a reason if the ranks' effective modes differ."""
    if len({facts.effective_mode for facts in ranks}) == 1:
        return ranks[0]
    modes = ", ".join(f"rank {rank} {facts.effective_mode}" for rank, facts in enumerate(ranks))
    return replace(ranks[0], effective_mode="mixed", effective_mode_reason=f"the ranks differ: {modes}")


def autotune_s() -> dict[str, float]:
    """Seconds of autotuning since the last reset: within compiles by their kind, and outside of compiles as
    `autotune`. Triton tries the variants of a kernel at its first launch, which calls nobody back."""
    seconds: dict[str, float] = {}
    for compiled in dynamo.compilation_metrics() or []:
        launched_us, compile_us = compiled.runtime_triton_autotune_time_us, compiled.compile_time_autotune_time_us
        if launched_us:
            seconds["autotune"] = seconds.get("autotune", 0.0) + launched_us / 1e6
        if compile_us:
            trigger = "LAZY_BACKWARD" if compiled.is_forward is False else "DYNAMO"
            kind = compile_kind(trigger, compiled.compile_id)
            seconds[kind] = seconds.get(kind, 0.0) + compile_us / 1e6
    return seconds


def _before_inductor_s() -> float | None:
    seconds = stages_s()
    if seconds is None:
        return None
    return seconds["capture"] + seconds["differentiation"]


def stages_s() -> dict[str, float] | None:
    """Seconds of all compiles since the last reset, by STAGES; None if this torch does not say.

    Torch's clocks are nested; here each stage has its own time. Capture is Dynamo without its backend; differentiation
    is AOTAutograd without inductor (with the backend eager: the time of that); lowering is inductor without code
    generation, which includes waiting for the C++ or Triton compiler.
    """
    metrics = dynamo.compilation_metrics()
    if metrics is None:
        return None
    seconds = dict.fromkeys(STAGES, 0.0)
    for compiled in metrics:
        dynamo_us, aot_us = compiled.dynamo_cumulative_compile_time_us, compiled.aot_autograd_cumulative_compile_time_us
        backward_us, inductor_us = (
            compiled.backward_cumulative_compile_time_us,
            compiled.inductor_cumulative_compile_time_us,
        )
        code_us = compiled.inductor_code_gen_cumulative_compile_time_us
        autotune_us = compiled.compile_time_autotune_time_us
        seconds["capture"] += max(dynamo_us - aot_us, 0) / 1e6
        seconds["differentiation"] += max(aot_us + backward_us - inductor_us, 0) / 1e6
        seconds["lowering"] += max(inductor_us - code_us - autotune_us, 0) / 1e6
        seconds["code generation"] += code_us / 1e6
        seconds["autotuning"] += (autotune_us + compiled.runtime_triton_autotune_time_us) / 1e6
    return seconds
