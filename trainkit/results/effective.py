"""The columns on how torch.compile compiled the network. None: this torch does not report it."""

from dataclasses import dataclass

from trainkit.results.columns import OverRanks, OverRepeats, Section, column
from trainkit.results.facts import GraphBreak, GraphSize, Policy, Region, TunedKernel


@dataclass(frozen=True)
class Effective:
    """The work of the compiler on rank 0, over all stages of a cascade; mode and regions are its first stage's."""

    effective_mode: str | None = column(
        None, "Mode that took effect; `mixed` where only a part of the network or of the run has the requested mode."
    )
    effective_mode_reason: str | None = column(None, "Why `effective_mode` differs from `compile_mode`.")
    num_graphs: int | None = column(None, "Graphs that were captured.", shown={Section.COMPILER: "graphs"})
    graph_sizes: list[GraphSize] | None = column(None, "Operations and inputs of each captured graph.")
    tuned_kernels: list[TunedKernel] | None = column(
        None,
        "Kernels that were the fastest when max-autotune timed them, each by itself; where an operation behind it is "
        "fused with it, another one may run. None without autotuning, or if all graphs are from the cache.",
    )
    num_graph_breaks: int | None = column(
        None, "Distinct source locations at which a graph broke.", shown={Section.COMPILER: "graph breaks"}
    )
    graph_breaks: list[GraphBreak] | None = column(None, "The graph breaks, one for each source location.")
    num_recompiles: int | None = column(
        None, "Compiles of code that had been compiled before.", shown={Section.COMPILER: "recompiles"}
    )
    recompiles: list[str] | None = column(None, "Torch's reason for each recompile.")
    recompile_shapes: list[list[list[int]] | None] | None = column(
        None, "Shapes of the inputs and targets of the batch that caused each recompile."
    )
    recompile_times_s: list[float] | None = column(None, "Time of each recompile, forward and backward.", unit="s")
    before_inductor_s: float | None = column(
        None,
        "Time of compiles before inductor: Dynamo's capture and AOTAutograd's differentiation. No mode changes it.",
        unit="s",
        over_repeats=OverRepeats.MEDIAN,
    )
    num_cudagraphs: int | None = column(None, "Recorded CUDA graphs.", shown={Section.COMPILER: "CUDA graphs"})
    num_cudagraph_skips: int | None = column(
        None, "How many times a CUDA graph was skipped.", shown={Section.COMPILER: "skipped"}
    )
    cudagraph_skips: list[str] | None = column(None, "Torch's distinct reasons for skipped CUDA graphs.")
    recompile_limit_hit: bool | None = column(
        None, "Whether code ran uncompiled after a limit of recompiles.", shown={Section.COMPILER: "limit hit"}
    )
    policies: list[Policy] | None = column(
        None,
        "The settings that let calls run uncompiled (`compile.start`, `.min_batch_size`, `.max_memory_frac`, "
        "`.on_error=eager`), each with the number and the share of the calls that it did; None without such a setting.",
    )
    num_dropped_variants: int | None = column(
        None,
        "Compiled variants that `compile.max_variants` dropped; None without it.",
        shown={Section.COMPILER: "variants dropped"},
    )
    num_compile_failures: int | None = column(
        None,
        "Calls whose compile failed, with `compile.on_error=eager`; None without it.",
        shown={Section.COMPILER: "failed compiles"},
    )
    compiled_parts: list[Region] | None = column(
        None, "The modules and functions that were compiled by themselves, for the scopes `parts` and `blocks`."
    )


@dataclass(frozen=True)
class EagerSteps:
    """How many steps ran compiled."""

    num_compiled_steps: int | None = column(None, "Steps in which everything ran compiled.", unit="steps")
    num_eager_steps: int | None = column(
        None,
        "Steps in which code ran uncompiled that mode `default` would compile, apart from code between graph breaks.",
        unit="steps",
        over_ranks=OverRanks.ANY,
        shown={Section.COMPILER: "steps uncompiled"},
    )


@dataclass(frozen=True)
class CompileCache:
    """The compile cache's share in the compiles of rank 0."""

    cache_found: str | None = column(
        None,
        "State of the compile cache: `cold` (no hit), `warm` (no miss) or `mixed`.",
        shown={Section.COMPILER: "cache found"},
    )
    cache_hits: int | None = column(None, "Hits of the caches of graphs.", shown={Section.COMPILER: "hits"})
    cache_misses: int | None = column(None, "Misses of the caches of graphs.", shown={Section.COMPILER: "misses"})


@dataclass(frozen=True)
class CompileArtifacts:
    """What became of the file `compile.artifacts`."""

    artifacts: str | None = column(
        None,
        "`written` or `loaded`; `foreign` (of other versions, another GPU or config) or `broken`: not loaded; "
        "`unwritten`: it could not be written.",
        shown={Section.COMPILER: "artifacts"},
    )
    artifacts_reason: str | None = column(None, "Why the file was not loaded or not written.")
    artifacts_bytes: int | None = column(None, "Size of the file that was loaded or written.", unit="bytes")


@dataclass(frozen=True)
class CompileFacts(CompileCache, Effective):
    """The columns that the compiler itself fills: its work in one process."""
