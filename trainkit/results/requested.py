"""The columns that a config determines before anything runs, and their values for a config."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainkit.config.network_file import network_digest
from trainkit.config.open_groups import named_nodes
from trainkit.config.schema import SETTINGS, CompileConfig, RunConfig
from trainkit.config.settings import value_of
from trainkit.results.columns import Section, column

ADDED_BY_LAUNCHER = ("sweep", "repeat", "parallel_jobs")


@dataclass(frozen=True)
class Requested:
    """The requested settings. Those of torch.compile and precision are of the run's own network in a cascade."""

    model: str = column("", "Network: the name of its file in conf/model.")
    network_digest: str | None = column(
        None,
        "Tells versions of the network's code apart: 8 digits of a hash of the file of its class, without the files "
        "that this imports.",
        shown={Section.ENVIRONMENT: "network file"},
    )
    data: str = column("", "Data: the name of its file in conf/data.")
    objective: str = column("cross_entropy", "Loss and metric: the name of their file in conf/objective, or the loss.")
    batch_size: int | None = column(None, "Samples per batch and process; None where it varies.", unit="samples")
    batch_sizes: list[int] | None = column(None, "The batch sizes, where they vary.", unit="samples")
    precision: str = column("", "`amp.precision`.", shown={Section.ENVIRONMENT: "precision"})
    matmul_precision: str = column("", "`amp.matmul_precision`.", shown={Section.ENVIRONMENT: "matmul precision"})
    strategy: str = column(
        "",
        "`single`, `ddp`, `compiled` or `fsdp2`, once the run has started.",
        shown={Section.ENVIRONMENT: "strategy"},
    )
    accelerator: str = column("", "`cpu` or `gpu`, once the run has started.")
    deterministic: bool = column(False, "`trainer.deterministic`.")
    val_check_interval: float | None = column(None, "`trainer.val_check_interval`.")
    callbacks: list[str] | None = column(None, "`callbacks`: the class of each.")
    trainer_kwargs: dict[str, Any] | None = column(None, "`trainer.kwargs`.")
    compile_mode: str = column("", "`compile.mode`.")
    compile_dynamic: bool | None = column(None, "`compile.dynamic`.")
    compile_fullgraph: bool = column(False, "`compile.fullgraph`.")
    compile_backend: str = column("", "`compile.backend`.", shown={Section.ENVIRONMENT: "backend"})
    compile_options: dict[str, Any] | None = column(None, "`compile.options`.", shown={Section.ENVIRONMENT: "options"})
    compile_scope: str = column("", "`compile.scope`.", shown={Section.ENVIRONMENT: "compile scope"})
    compile_parts: list[dict[str, Any]] | None = column(
        None, "Patterns of `compile.parts`, each with the settings that differ from `compile.*`."
    )
    compile_mark_dynamic: list[dict[str, Any]] | None = column(None, "`compile.mark_dynamic`.")
    compile_max_recompiles: int | None = column(None, "`compile.max_recompiles`.")
    compile_max_failures: int = column(1, "`compile.max_failures`.")
    compile_start: str = column("at_once", "`compile.start`.")
    compile_min_batch_size: int | None = column(None, "`compile.min_batch_size`.", unit="samples")
    compile_max_variants: int | None = column(None, "`compile.max_variants`.")
    compile_max_memory_frac: float | None = column(None, "`compile.max_memory_frac`.")
    compile_cache: str = column("", "`compile.cache`.", shown={Section.ENVIRONMENT: "compile cache"})
    seed: int = column(0, "`seed`.")
    num_parallel_jobs: int = column(1, "Most jobs of the sweep that ran side by side.")
    engine: str = column("network", "`forward.engine`.")
    timing: str = column("calls", "`forward.timing`.")
    calls_per_window: int | None = column(
        None, "`forward.calls_per_window`; None if each call is waited for.", unit="calls"
    )
    deadline_ms: float | None = column(None, "`forward.deadline_ms`.", unit="ms")
    period_ms: float | None = column(None, "`forward.period_ms`; None: as `deadline_ms`.", unit="ms")
    emergency_frac: float = column(0.0, "`forward.emergency_frac`.")
    emergency_first: bool = column(False, "`forward.emergency_first`.")
    fallback: list[str] | None = column(None, "`forward.fallback`.")
    late: str = column("wait", "`forward.late`.")
    overrides: list[str] = column(list, "The overrides as typed, without those that tell the jobs of a sweep apart.")


def run_overrides(overrides: list[str]) -> list[str]:
    """The overrides without those that a launcher adds."""
    return [override for override in overrides if override.split("=")[0] not in ADDED_BY_LAUNCHER]


def requested_fields(config: RunConfig) -> dict[str, Any]:
    """The requested settings of a run, by the names of a Row's fields."""
    run_dir = Path(config.job.run_dir)
    values: dict[str, Any] = {
        "run_id": f"{run_dir.parent.name}/{run_dir.name}",
        "model": config.job.model,
        "network_digest": network_digest(config.model.get("_target_")),
        "data": config.job.data,
        "objective": config.job.objective,
        "overrides": run_overrides(config.job.overrides),
    }
    for setting in SETTINGS.values():
        if setting.facts.column is not None and not setting.is_group:
            value = value_of(config, setting.name)
            values[setting.facts.column] = None if value in ([], {}) else value
    if values["batch_sizes"]:
        values["batch_size"] = None
    if values["timing"] == "calls":
        values["calls_per_window"] = None
    values["callbacks"] = [node["_target_"] for node in named_nodes(config.callbacks).values()] or None
    values["compile_parts"] = requested_parts(config.compile) if config.compile.scope == "parts" else None
    values["compile_mark_dynamic"] = [asdict(mark) for mark in config.compile.mark_dynamic] or None
    return values


def requested_parts(config: CompileConfig) -> list[dict[str, Any]]:
    """Each pattern of `compile.parts` with the settings that differ from those of `compile`."""
    requested = []
    for part in config.parts:
        entry: dict[str, Any] = {"match": part.match}
        for name in ("mode", "dynamic", "fullgraph", "backend", "options"):
            value = getattr(part, name)
            if value != getattr(config, name):
                entry[name] = value
        requested.append(entry)
    return requested
