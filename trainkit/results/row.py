"""Row: the settings, measurements and machine of one run. Flat, frozen, units in the names."""

import math
from dataclasses import dataclass, field
from typing import Any

from trainkit.config.schema import Kind
from trainkit.results.facts import GraphBreak, Region, ShapeLatency, Stage

SCHEMA_VERSION = 2
KINDS = tuple(kind.value for kind in Kind)
COMPILE_KINDS = ("forward", "backward", "autotune", "cudagraph", "recompile")  # what compile seconds go into
STATUSES = ("ok", "failed", "oom", "compile_error", "nan", "timeout", "interrupted")


@dataclass(frozen=True)
class Row:
    """One run: what was asked, what was got, what it cost, what it was worth, on which machine.

    A field that could not be measured is None, never a guess. `batch_size` is per process, None where it varies
    (`batch_sizes`); samples are counted over all processes. `peak_allocated_bytes` counts CUDA-graph pools, so that it
    compares between modes; the three peaks are of the steps in which nothing compiled, their `compile_` counterparts
    of those in which something did.

    `compile_parts` has each pattern of the scope parts, with what it asks for otherwise than `compile.*`;
    `compiled_parts`, of the scopes parts and blocks, each module and function that was compiled: its name, how, the
    graphs that its calls brought (0: it reuses another block's) and the number of its calls.

    `recompiles` are their reasons, and in the same order `recompile_shapes` those of the inputs and the targets of the
    batch that brought each, and `recompile_times_s` its seconds, forward and backward. In `num_eager_steps` anything
    ran uncompiled that mode default would compile, but for what lies between graph breaks; `num_compiled_steps` are the
    others.

    `compile_time_s` is the sum of the five parts after it. `compile_startup_s` is not in it: a throw-away compile
    before the first real one, which pays once a process for imports and tools. `cache_found` is `cold` (no hit),
    `warm` (no miss) or `mixed`. Of the steps (compiling, warm-up, steady, or shorter than the others at an epoch's
    end) the times are those of the steady ones. `step_time_ms` is their median, and where shapes vary the mean of each
    shape's median over all steps of it: what compares between rows. `rank_spread_ms` is how much longer the slowest
    rank takes than the fastest, in the middle of the steps. Forward, backward and optimizer are of the profiling
    epoch. `num_skipped_steps` of `num_steps` left the parameters as they were, because fp16's gradients overflowed;
    None without a GradScaler.

    In a row of the kind `forward` a step is one call of the network with a batch, from the batch being on the device to
    its result being there, and `samples_per_s` is of the calls alone. `latency_by_shape` has, where the inputs have
    several shapes, for each of them: shape, num_calls (steady ones), time_ms_p50, time_ms_p90, time_ms_p99.
    `deadline_miss_frac` is the share of the steady calls that missed `deadline_ms` (deadline.Requests). With a
    `fallback`, `chain` has for each link, the run's own setting first: settings, model, compile_mode, effective_mode,
    effective_mode_reason, num_graphs, num_recompiles, num_calls (steady ones) and call_frac, its share of them all,
    time_ms_p50, time_ms_p90, time_ms_p99, and expected_ms: for each shape of the inputs what the choice went by in the
    end: time_ms, whether it fits, and time_ms_p50, which is the fastest. Mode and parts are then those of the first
    link; what else the compiler did, and what it cost, is that of all.
    """

    # identity
    run_id: str
    status: str
    error: str | None = None
    kind: str = "train"
    sweep_id: str | None = None
    repeat: int = 0
    schema_version: int = SCHEMA_VERSION
    # asked
    model: str = ""
    data: str = ""
    batch_size: int | None = None
    batch_sizes: list[int] | None = None
    compile_mode: str = ""
    compile_dynamic: bool | None = None
    compile_fullgraph: bool = False
    compile_backend: str = ""
    compile_scope: str = ""
    compile_parts: list[dict[str, Any]] | None = None
    compile_mark_dynamic: list[dict[str, Any]] | None = None
    compile_max_recompiles: int | None = None
    compile_cache: str = ""
    precision: str = ""
    matmul_precision: str = ""
    strategy: str = ""
    accelerator: str = ""
    world_size: int = 1
    seed: int = 0
    deadline_ms: float | None = None
    fallback: list[str] | None = None
    overrides: list[str] = field(default_factory=list)
    # got
    effective_mode: str | None = None
    effective_mode_reason: str | None = None
    num_graphs: int | None = None
    num_graph_breaks: int | None = None
    graph_breaks: list[GraphBreak] | None = None
    num_recompiles: int | None = None
    recompiles: list[str] | None = None
    recompile_shapes: list[list[list[int]] | None] | None = None
    recompile_times_s: list[float] | None = None
    recompile_limit_hit: bool | None = None
    num_cudagraph_skips: int | None = None
    cudagraph_skips: list[str] | None = None
    num_cudagraphs: int | None = None
    cache_hits: int | None = None
    cache_misses: int | None = None
    cache_found: str | None = None
    compiled_parts: list[Region] | None = None
    # cost
    compile_startup_s: float | None = None
    compile_time_s: float | None = None
    compile_forward_s: float | None = None
    compile_backward_s: float | None = None
    compile_autotune_s: float | None = None
    compile_cudagraph_s: float | None = None
    compile_recompile_s: float | None = None
    num_steps: int = 0
    num_compiling_steps: int = 0
    num_warmup_steps: int = 0
    num_steady_steps: int = 0
    num_compiled_steps: int | None = None
    num_eager_steps: int | None = None
    step_time_ms: float | None = None
    step_time_ms_p50: float | None = None
    step_time_ms_p90: float | None = None
    step_time_ms_p99: float | None = None
    step_time_ms_iqr: float | None = None
    rank_spread_ms: float | None = None
    latency_by_shape: list[ShapeLatency] | None = None
    deadline_miss_frac: float | None = None
    chain: list[Stage] | None = None
    forward_time_ms_p50: float | None = None
    backward_time_ms_p50: float | None = None
    optimizer_time_ms_p50: float | None = None
    epoch_train_time_s: float | None = None
    epoch_val_time_s: float | None = None
    samples_per_s: float | None = None
    data_wait_frac: float | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_device_bytes: int | None = None
    compile_peak_allocated_bytes: int | None = None
    compile_peak_reserved_bytes: int | None = None
    compile_peak_device_bytes: int | None = None
    # worth
    num_epochs: int = 0
    train_loss: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None
    num_val_targets: int | None = None
    num_skipped_steps: int | None = None
    # same answer: largest relative differences to a float64 reference over the first steps, with check=true
    check_passed: bool | None = None
    check_reason: str | None = None
    check_loss_rel_diff: float | None = None
    check_grad_rel_diff: float | None = None
    check_param_rel_diff: float | None = None
    check_eager_loss_rel_diff: float | None = None
    check_eager_grad_rel_diff: float | None = None
    check_eager_param_rel_diff: float | None = None
    # machine
    device_name: str | None = None
    num_devices: int | None = None
    torch_version: str | None = None
    triton_version: str | None = None
    cuda_version: str | None = None
    python_version: str | None = None
    lightning_version: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("status", STATUSES), ("kind", KINDS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} = {getattr(self, name)}: expected one of {', '.join(allowed)}")


def finite(value: float | None) -> float | None:
    """The value, or None where it is not a finite number: JSON knows neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None
