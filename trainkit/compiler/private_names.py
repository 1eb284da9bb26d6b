"""The table of torch's private names that trainkit uses, each with the versions that have it."""

import importlib
from dataclasses import dataclass
from typing import Any

import torch

SUPPORTED = ">=2.11,<2.14"  # as in pyproject.toml


@dataclass(frozen=True)
class PrivateName:
    """A name that torch may change without notice. `versions` are the releases of torch that have it; `without` names
    the facts that are unknown without it, or the settings that have no effect."""

    module: str
    attribute: str  # with dots below a class
    without: str
    versions: str = SUPPORTED


def _metrics_field(attribute: str, without: str, versions: str = SUPPORTED) -> PrivateName:
    return PrivateName("torch._dynamo.utils", f"CompilationMetrics.{attribute}", without, versions)


PRIVATE_NAMES = (
    # counts
    PrivateName("torch._dynamo.utils", "counters", "num_graphs, num_cudagraph_skips, cache_hits, effective_mode"),
    PrivateName("torch._dynamo.utils", "graph_break_reasons", "num_graph_breaks, graph_breaks"),
    PrivateName("torch._dynamo.utils", "get_compilation_metrics", "recompiles, recompile_limit_hit, cudagraph_skips"),
    PrivateName("torch._dynamo.utils", "clear_compilation_metrics", "compiles of earlier runs are counted too"),
    PrivateName("torch._dynamo.utils", "set_compilation_metrics_limit", "only the last 64 compiles are listed"),
    PrivateName("torch._dynamo.utils", "_compilation_metrics", "the limit of listed compiles is not restored"),
    # compilation metrics
    _metrics_field("compile_id", "recompile_shapes, kinds of compile"),
    _metrics_field("co_name", "the function that a graph break leaves to Python"),
    _metrics_field("co_filename", "source locations of recompiles"),
    _metrics_field("co_firstlineno", "source locations of recompiles"),
    _metrics_field("recompile_reason", "num_recompiles, recompiles"),
    _metrics_field("graph_op_count", "graph_sizes"),
    _metrics_field("graph_input_count", "graph_sizes"),
    _metrics_field("fail_type", "functions that are left to Python as a whole"),
    _metrics_field("fail_reason", "recompile_limit_hit, functions that are left to Python as a whole"),
    _metrics_field("fail_user_frame_filename", "source locations of functions that are left to Python"),
    _metrics_field("fail_user_frame_lineno", "source locations of functions that are left to Python"),
    _metrics_field("cudagraph_skip_reason", "cudagraph_skips found while compiling"),
    _metrics_field("is_forward", "whether autotuning belongs to forward or backward"),
    _metrics_field("duration_us", "recompile_times_s"),
    _metrics_field("compile_time_autotune_time_us", "compile_autotune_s within compiles"),
    _metrics_field("runtime_triton_autotune_time_us", "compile_autotune_s outside of compiles"),
    _metrics_field("dynamo_cumulative_compile_time_us", "seconds of capture"),
    _metrics_field("aot_autograd_cumulative_compile_time_us", "seconds of differentiation"),
    _metrics_field("backward_cumulative_compile_time_us", "seconds of differentiation, of backward"),
    _metrics_field("inductor_cumulative_compile_time_us", "seconds of lowering"),
    _metrics_field("inductor_code_gen_cumulative_compile_time_us", "seconds of code generation"),
    # callbacks
    PrivateName("torch._dynamo.callback", "callback_handler", "compile times, compiling steps, num_cudagraphs"),
    PrivateName("torch._dynamo.eval_frame", "set_guard_complete_hook", "num_eager_steps, num_compiled_steps"),
    PrivateName("torch._inductor.cudagraph_trees", "log_cudagraph_skip_and_bump_counter", "cudagraph_skips in calls"),
    PrivateName("torch._inductor.async_compile", "AsyncCompile._ready_future", "start-up does not wait for workers"),
    PrivateName("torch._inductor.async_compile", "maybe_warm_pool", "the first compile waits until workers start"),
    PrivateName("torch._inductor.config", "worker_start_method", "foreign_processes beside forked workers"),
    # autotuning
    PrivateName("torch._inductor.select_algorithm", "get_algorithm_selector_cache", "tuned_kernels"),
    PrivateName("torch._inductor.runtime.compile_tasks", "_set_triton_ptxas_path", "kernels to try compile twice"),
    # generated code
    PrivateName("torch._inductor.codecache", "PyCodeCache.modules", "check_kernels_agree"),
    # settings
    PrivateName("torch._dynamo.config", "optimize_ddp", "ddp.optimize_ddp"),
    PrivateName("torch._dynamo.config", "recompile_limit", "compile.max_recompiles above torch's own limit"),
    PrivateName("torch._dynamo.config", "accumulated_recompile_limit", "compile.max_recompiles above torch's limit"),
    PrivateName("torch._dynamo.eval_frame", "_EXAMPLE_INPUTS", "compile.start=eager_then_compile in a second run"),
    PrivateName("torch._dynamo.eval_frame", "_debug_get_cache_entry_list", "compile.max_variants"),
    PrivateName("torch._dynamo.convert_frame", "input_codes", "compile.max_variants"),
    PrivateName("torch._dynamo.guards", "DeletedGuardManagerWrapper", "compile.max_variants"),
    PrivateName("torch._inductor.config", "compile_threads", "each rank compiles with as many threads as it has cores"),
    PrivateName("torch._inductor.config", "distributed_max_autotune_gemm", "compile.share_autotuning"),
    PrivateName("torch._inductor.distributed_autotune", "_AUTOTUNE_PG", "compile.share_autotuning in a second run"),
    PrivateName("torch._inductor.config", "reorder_for_compute_comm_overlap", "ddp.strategy=compiled"),
    PrivateName("torch._inductor.config", "reorder_for_compute_comm_overlap_passes", "ddp.strategy=compiled"),
    PrivateName(
        "torch._functorch.config",
        "autograd_cache_allow_custom_autograd_functions",
        "a warm cache lacks graphs",
    ),
    PrivateName("torch._inductor.utils", "contains_wait", "ddp.strategy=compiled"),
    PrivateName("torch._inductor.config", "unsafe_marked_cacheable_functions", "a warm cache lacks graphs"),
    PrivateName("torch._dynamo", "mark_dynamic", "compile.mark_dynamic"),
    PrivateName(
        "torch.compiler._cache", "CacheArtifactManager", "compile.artifacts has earlier runs of the process too"
    ),
    # loops in a graph
    PrivateName("torch._higher_order_ops.while_loop", "while_loop", "scripts/constructs.py"),
    PrivateName("torch._higher_order_ops.scan", "scan", "scripts/constructs.py"),
    PrivateName("torch._higher_order_ops.associative_scan", "associative_scan", "scripts/constructs.py"),
    # modules
    PrivateName("torch.nn", "Module._call_impl", "compile.scope=parts and blocks"),
    PrivateName("torch.nn", "Module._compiled_call_impl", "compile.scope=parts and blocks, compile.on_error=eager"),
    PrivateName("torch._dynamo", "mark_static_address", "ddp.shard_optimizer"),
    # backends
    PrivateName("torch._dynamo", "lookup_backend", "graphs in a profile, and their code"),
    PrivateName("torch._dynamo", "register_backend", "graphs in a profile, and their code"),
    PrivateName("torch._inductor", "aoti_compile_and_package", "forward.engine=aot_inductor"),
    PrivateName("torch._inductor", "aoti_load_package", "forward.engine=aot_inductor"),
    PrivateName("torch._inductor", "list_options", "compile.options with unknown names fail while compiling"),
    PrivateName("torch._inductor", "list_mode_options", "graphs in a profile, and their code"),
    PrivateName("torch._inductor.compile_fx", "compile_fx", "graphs in a profile, and their code"),
    PrivateName("torch._inductor.compile_fx", "compile_fx_inner", "graphs in a profile, and their code"),
    PrivateName("torch._inductor.cpp_builder", "get_cpp_compiler", "a missing C++ compiler is found while training"),
    PrivateName("torch._inductor.exc", "InvalidCxxCompiler", "a missing C++ compiler is found while training"),
    PrivateName("torch._inductor.cpu_vec_isa", "pick_vec_isa", "a cold cache measures 16 s of torch's own tests"),
    # errors
    PrivateName("torch._utils", "ExceptionWrapper", "a batch that a worker cannot hand on is waited for"),
    PrivateName("torch._dynamo.exc", "TorchDynamoException", "compile_error, compile.on_error=eager"),
    PrivateName("torch._dynamo.exc", "FailOnRecompileLimitHit", "compile_error at torch's recompile limit"),
    PrivateName("torch.fx.experimental.symbolic_shapes", "ConstraintViolationError", "marks that the network fixes"),
    # text that torch writes
    PrivateName("torch._dynamo.resume_execution", "TORCH_DYNAMO_RESUME_IN_PREFIX", "graph breaks before recompiles"),
    PrivateName("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "_CHECKPOINT_WRAPPED_MODULE", "names"),
    PrivateName("torch.utils._traceback", "shorten_filename", "source locations in guards"),
)
_BY_ATTRIBUTE = {name.attribute: name for name in PRIVATE_NAMES}


def find(attribute: str) -> Any:
    """The object behind a name of the table; None if this torch lacks it."""
    name = _BY_ATTRIBUTE[attribute]
    try:
        value = importlib.import_module(name.module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (AttributeError, ImportError):
        return None
    return value


def module_of(attribute: str) -> Any:
    """The imported module that has a name of the table."""
    return importlib.import_module(_BY_ATTRIBUTE[attribute].module)


def require(attribute: str) -> Any:
    """The object behind a name of the table. NotImplementedError if this torch lacks it."""
    value = find(attribute)
    if value is None:
        name = _BY_ATTRIBUTE[attribute]
        raise NotImplementedError(f"{name.module}.{attribute}: missing in torch {torch.__version__}; {name.without}")
    return value
