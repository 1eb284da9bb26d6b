"""The one adapter to torch's private names: typed functions over the table in private_names.

A name that the installed torch lacks makes its facts None ("unknown"), and the run goes on. A function without which
a setting cannot take effect raises NotImplementedError.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from traceback import FrameSummary
from typing import Any

import torch

from trainkit.compiler.private_names import find, module_of, require
from trainkit.config.schema import EAGER_THEN_COMPILE

RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+)_at_(\d+)")  # torch's name for the rest of a function after a break
CHECKPOINTED = "_checkpoint_wrapped_module"  # the attribute of activation checkpointing's wrapper
FAIL_ON_RECOMPILE = "fail_on_recompile"  # a stance; the error that it raises names it
CUDAGRAPH_TREES = "torch._inductor.cudagraph_trees"  # imported once anyone uses CUDA graphs


# Counts and compilation metrics


@dataclass(frozen=True)
class CompilationMetrics:
    """Torch's metrics of one compile, forward or backward; the fields have torch's names. Times in microseconds."""

    compile_id: str = ""  # frame/variant, with _restart if it began again: "0/1_2"
    co_name: str = ""
    co_filename: str = ""
    co_firstlineno: int = 0
    recompile_reason: str | None = None
    graph_op_count: int | None = None
    graph_input_count: int | None = None
    fail_type: str | None = None
    fail_reason: str = ""
    fail_user_frame_filename: str | None = None
    fail_user_frame_lineno: int | None = None
    cudagraph_skip_reason: str | None = None
    is_forward: bool | None = None
    duration_us: int = 0
    compile_time_autotune_time_us: int = 0
    runtime_triton_autotune_time_us: int = 0
    dynamo_cumulative_compile_time_us: int = 0
    aot_autograd_cumulative_compile_time_us: int = 0
    backward_cumulative_compile_time_us: int = 0
    inductor_cumulative_compile_time_us: int = 0
    inductor_code_gen_cumulative_compile_time_us: int = 0

    @property
    def frame_id(self) -> str:
        return self.compile_id.partition("/")[0]

    @property
    def variant_id(self) -> str:
        return variant_id(self.compile_id)


def variant_id(compile_id: str) -> str:
    """The frame and its variant: "0/1" of "0/1_2", the second restart of that compile."""
    return compile_id.partition("_")[0]


def compilation_metrics() -> list[CompilationMetrics] | None:
    """The metrics of each compile since `reset_counts`."""
    read = find("get_compilation_metrics")
    if read is None:
        return None
    return [_typed_metrics(metrics) for metrics in read()]


def _typed_metrics(metrics: Any) -> CompilationMetrics:
    values: dict[str, Any] = {"compile_id": str(metrics.compile_id)}
    for field in fields(CompilationMetrics)[1:]:
        value = getattr(metrics, field.name, None)
        if value is not None:
            values[field.name] = value
    return CompilationMetrics(**values)


@contextmanager
def metrics_limit(num_compiles: int) -> Iterator[None]:
    """Let torch keep the metrics of so many compiles. Afterwards it keeps as many as before."""
    set_limit = find("set_compilation_metrics_limit")
    limit_before = getattr(find("_compilation_metrics"), "maxlen", None)
    if set_limit is not None:
        set_limit(num_compiles)
    try:
        yield
    finally:
        if set_limit is not None and limit_before is not None:
            set_limit(limit_before)


@dataclass(frozen=True, eq=False)
class BreakReason:
    """Torch's reason for a graph break, and the user's frames around it, innermost last."""

    reason: str
    user_stack: list[FrameSummary]


def break_reasons() -> list[BreakReason] | None:
    """The graph breaks since `reset`, in the order in which torch met them."""
    reasons = find("graph_break_reasons")
    if reasons is None:
        return None
    breaks = []
    for reason in reasons:
        if reason.graph_break:
            breaks.append(BreakReason(str(reason.reason), list(reason.user_stack)))
    return breaks


def count(*names: tuple[str, str]) -> int | None:
    """The sum of torch's counters of these names, each (group, name)."""
    counters = find("counters")
    if counters is None:
        return None
    total: int = sum(counters[group][name] for group, name in names)
    return total


def num_graphs() -> int | None:
    """The graphs captured since `reset_counts`."""
    return count(("stats", "unique_graphs"))


def reset() -> None:
    """Drop all compiled code, all counts and all callbacks of this process."""
    torch.compiler.reset()
    reset_counts()


def reset_counts() -> None:
    """Drop all counts; compiled code stays."""
    counters = find("counters")
    if counters is not None:
        counters.clear()
    clear_metrics = find("clear_compilation_metrics")
    if clear_metrics is not None:
        clear_metrics()


# Callbacks


def on_compiles(on_start: Callable[[str, str], None], on_end: Callable[[str, str], None]) -> Callable[[], None]:
    """Call back with (trigger, compile id) around every outermost compile and every CUDA-graph recording, until the
    returned function is called."""
    handler = find("callback_handler")
    if handler is None:
        return lambda: None

    def started(compiled: Any) -> None:
        on_start(compiled.callback_trigger.name, str(compiled.compile_id))

    def ended(compiled: Any) -> None:
        on_end(compiled.callback_trigger.name, str(compiled.compile_id))

    def stop() -> None:
        if started in handler.start_callbacks:  # torch.compiler.reset() of the user's drops them
            handler.remove_start_callback(started)
            handler.remove_end_callback(ended)

    handler.register_start_callback(started)
    handler.register_end_callback(ended)
    return stop


def reports_lookups() -> bool:
    """Whether this torch reports which calls found no compiled variant."""
    return find("set_guard_complete_hook") is not None


def on_lookups(on_lookup: Callable[[bool], bool]) -> Callable[[], None]:
    """Call back whenever torch looks for a compiled variant of a frame, with whether it found one, until the returned
    function is called. `on_lookup` returns True."""
    set_hook = find("set_guard_complete_hook")
    if set_hook is None:
        return lambda: None
    set_hook(on_lookup)
    return lambda: set_hook(None)


@contextmanager
def on_cudagraph_skips(on_skip: Callable[[str], None]) -> Iterator[None]:
    """Call back with torch's reason whenever a CUDA graph is skipped while the network runs (an input that is written
    to, too many recordings): torch counts these skips, and keeps no reason of them."""
    log_skip = find("log_cudagraph_skip_and_bump_counter")
    if log_skip is None:
        yield
        return

    def skipped(reason: str) -> None:
        on_skip(reason)
        log_skip(reason)

    trees = sys.modules[CUDAGRAPH_TREES]
    with replaced(trees, "log_cudagraph_skip_and_bump_counter", skipped):
        yield


# Settings


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute, and restore it."""
    missing = object()
    before = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def settings(**values: Any) -> Iterator[None]:
    """Change settings of torch's config modules, and restore them. NotImplementedError if this torch lacks
    one of them."""
    values_before = {name: require(name) for name in values}
    for name, value in values.items():
        setattr(module_of(name), name, value)
    try:
        yield
    finally:
        for name, value in values_before.items():
            setattr(module_of(name), name, value)


def recompile_limits() -> dict[str, int]:
    """Torch's own limits of recompiles, by their names in torch._dynamo.config."""
    names = ("recompile_limit", "accumulated_recompile_limit")
    return {name: require(name) for name in names}


@contextmanager
def eager_then_compile() -> Iterator[None]:
    """Torch's stance of that name: each function runs uncompiled at its first call. Torch remembers these calls for the
    whole process, `reset` or not; here they begin anew."""
    with (
        replaced(module_of("_EXAMPLE_INPUTS"), "_EXAMPLE_INPUTS", None),
        torch.compiler.set_stance(EAGER_THEN_COMPILE),
    ):
        yield


def drop_variants(num_kept: int) -> int:
    """Drop of each function all compiled variants but those used last; returns how many. Torch has them by last use."""
    variants_of, is_deleted = require("_debug_get_cache_entry_list"), require("DeletedGuardManagerWrapper")
    num_dropped = 0
    for reference in require("input_codes").seen:
        code = reference()
        if code is None:
            continue
        variants = [variant for variant in variants_of(code) if variant.code is not None]
        for variant in variants[num_kept:]:
            guards = is_deleted("dropped: compile.max_variants")
            variant.guard_manager.extra_state.invalidate(variant, guards)
            num_dropped += 1
    return num_dropped


def mark_dynamic(tensor: torch.Tensor, dim: int, bounds: tuple[int, int] | None) -> None:
    """Compile for any size of a dimension, within the bounds."""
    mark = require("mark_dynamic")
    if bounds is None:
        mark(tensor, dim)
    else:
        mark(tensor, dim, min=bounds[0], max=bounds[1])


# Errors and text


def compile_errors() -> tuple[type[BaseException], ...]:
    """The exceptions that only compiling raises."""
    exceptions = []
    for name in ("TorchDynamoException", "FailOnRecompileLimitHit", "ConstraintViolationError"):
        exception = find(name)
        if exception is not None:
            exceptions.append(exception)
    return tuple(exceptions)


def is_constraint_violation(error: BaseException) -> bool:
    """Whether a dimension that was marked dynamic turned out not to be."""
    violation = find("ConstraintViolationError")
    return violation is not None and isinstance(error, violation)


def shorten_filename(path: str) -> str:
    """A path as torch writes it into guards: without the beginning that it shares with torch's own."""
    shorten = find("shorten_filename")
    if shorten is None:
        return path
    shortened: str = shorten(path)
    return shortened
