"""What a run leaves on disk: one Row and its EpochRecords. Flat, frozen, units in the names. No torch."""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from trainkit.config.schema import CompileConfig, Kind, PartConfig, RunConfig

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
    graph_breaks: list[dict[str, Any]] | None = None
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
    compiled_parts: list[dict[str, Any]] | None = None
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
    latency_by_shape: list[dict[str, Any]] | None = None
    deadline_miss_frac: float | None = None
    chain: list[dict[str, Any]] | None = None
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
        for name, known in (("status", STATUSES), ("kind", KINDS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} = {getattr(self, name)}: expected one of {', '.join(known)}")


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of a run. Train time is without validation, checkpoints and logging; samples over all processes.

    `step_time_ms_p50` and `samples_per_s` are of the epoch's steady steps, None where it has none.
    """

    epoch: int
    train_time_s: float
    val_time_s: float | None
    compile_time_s: float
    num_steps: int
    num_samples: int
    step_time_ms_p50: float | None
    samples_per_s: float | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_device_bytes: int
    train_loss: float | None
    val_loss: float | None
    val_accuracy: float | None
    num_steady_steps: int = 0
    num_skipped_steps: int | None = None


def settings_typed(overrides: list[str]) -> list[str]:
    """The overrides that set something of the run itself: what a launcher adds to tell jobs apart is left out."""
    return [override for override in overrides if override.split("=")[0] not in ("sweep", "repeat")]


def asked(config: RunConfig) -> dict[str, Any]:
    """The fields of a Row that say what the config asked for; known before anything runs."""
    sizes = config.data.get("batch_sizes") or None
    return {
        "run_id": f"{Path(config.job.run_dir).parent.name}/{Path(config.job.run_dir).name}",
        "kind": config.job.kind.value,
        "sweep_id": config.sweep,
        "repeat": config.repeat,
        "model": config.job.model,
        "data": config.job.data,
        "batch_size": None if sizes else config.data.get("batch_size"),
        "batch_sizes": sizes,
        "compile_mode": config.compile.mode.value,
        "compile_dynamic": config.compile.dynamic,
        "compile_fullgraph": config.compile.fullgraph,
        "compile_backend": config.compile.backend,
        "compile_scope": config.compile.scope.value,
        "compile_parts": parts_asked(config.compile) if config.compile.scope.value == "parts" else None,
        "compile_mark_dynamic": [asdict(dim) for dim in config.compile.mark_dynamic] or None,
        "compile_max_recompiles": config.compile.max_recompiles,
        "compile_cache": config.compile.cache.value,
        "precision": config.amp.precision.value,
        "matmul_precision": config.amp.matmul_precision.value,
        "strategy": config.ddp.strategy.value,
        "accelerator": config.trainer.accelerator.value,
        "seed": config.seed,
        "deadline_ms": config.forward.deadline_ms,
        "fallback": config.forward.fallback or None,
        "overrides": settings_typed(config.job.overrides),
    }


def parts_asked(asked: CompileConfig) -> list[dict[str, Any]]:
    """The patterns of `compile.parts`, each with the settings of its own."""

    def own(part: PartConfig) -> dict[str, Any]:
        every = {"mode": asked.mode, "dynamic": asked.dynamic, "fullgraph": asked.fullgraph, "backend": asked.backend}
        return {name: getattr(part, name) for name, of_all in every.items() if getattr(part, name) != of_all}

    return [{"match": part.match} | own(part) for part in asked.parts]


def finite(value: float | None) -> float | None:
    """The value, or None where it is not a finite number: JSON knows neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None


def write_row(run_dir: Path | str, row: Row) -> Path:
    """Write `<run_dir>/row.json` in one atomic step: a reader sees the old row or the new one, never half of one."""
    path = Path(run_dir) / "row.json"
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(asdict(row), indent=2) + "\n")
    temporary.replace(path)
    return path


def read_row(run_dir: Path | str) -> Row | None:
    """The row of a run directory, or None where there is none. Fields of a newer schema are left out. ValueError,
    naming the file, for one that is no row."""
    path = Path(run_dir) / "row.json"
    if not path.exists():
        return None
    numbers = {f.name for f in fields(Row) if f.type in (int, float, int | None, float | None)}
    known = {f.name for f in fields(Row)}
    try:
        row = {name: value for name, value in json.loads(path.read_text()).items() if name in known}
        for name in numbers & row.keys():
            if row[name] is not None and not math.isfinite(row[name]):
                raise ValueError(f"{name} = {row[name]}: expected a number")
        return Row(**row)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a row: {error}") from error


def read_rows(root: Path | str) -> list[Row]:
    """All rows in or below a directory, in the order of their paths."""
    return [row for path in sorted(Path(root).rglob("row.json")) if (row := read_row(path.parent)) is not None]


def append_epoch(run_dir: Path | str, record: EpochRecord) -> None:
    """Append one line to `<run_dir>/epochs.jsonl` and flush it to the disk."""
    path = Path(run_dir) / "epochs.jsonl"
    cut_off = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")  # by a kill while it was written
    with path.open("a") as file:
        file.write("\n" * cut_off)
        file.write(json.dumps(asdict(record)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_epochs(run_dir: Path | str) -> Iterator[EpochRecord]:
    """The epoch records of a run directory, oldest first. A line that a kill has cut off is no record."""
    path = Path(run_dir) / "epochs.jsonl"
    known = {f.name for f in fields(EpochRecord)}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        yield EpochRecord(**{name: value for name, value in record.items() if name in known})


def read_runs(*roots: Path | str) -> tuple[list[Row], dict[str, list[EpochRecord]]]:
    """All rows in or below directories, each once, in the order of their paths, and the epoch records by `run_id`.
    Where several runs have the same one, theirs are their directories: sweeps of one name in two places."""
    found = {path.parent.resolve(): path.parent for root in roots for path in sorted(Path(root).rglob("row.json"))}
    rows = {run_dir: row for run_dir in found.values() if (row := read_row(run_dir)) is not None}
    names = [row.run_id for row in rows.values()]
    unique = {
        run_dir: row if names.count(row.run_id) == 1 else replace(row, run_id=str(run_dir))
        for run_dir, row in rows.items()
    }
    return list(unique.values()), {row.run_id: list(read_epochs(run_dir)) for run_dir, row in unique.items()}


def set_aside(run_dir: Path | str) -> None:
    """Rename the files of an earlier run in the same directory to `row.1.json`, `epochs.1.jsonl`, ...: none is lost."""
    for path in (Path(run_dir, "row.json"), Path(run_dir, "epochs.jsonl")):
        if path.exists():
            numbers = [int(older.suffixes[0][1:]) for older in path.parent.glob(f"{path.stem}.[0-9]*{path.suffix}")]
            path.rename(path.with_suffix(f".{max(numbers, default=0) + 1}{path.suffix}"))


def fail_row(run_dir: Path | str, status: str, error: str) -> bool:
    """Another process than the one that measures says why the run ended. The first reason stays: whether it was it."""
    row = read_row(run_dir)
    first = row is not None and row.status == "interrupted" and status != "interrupted"
    if row is not None and first:
        write_row(run_dir, replace(row, status=status, error=error))
    return first


def end_row(run_dir: Path | str, row: Row) -> Row:
    """Write the last row of a run. Where another process already said why the run failed, its reason stays."""
    before = read_row(run_dir)
    if row.status != "ok" and before is not None and before.status not in ("ok", "interrupted"):
        row = replace(row, status=before.status, error=before.error)
    write_row(run_dir, row)
    return row
