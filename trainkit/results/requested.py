"""The fields of a Row that a config determines before anything runs."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainkit.config.schema import CompileConfig, RunConfig


def run_overrides(overrides: list[str]) -> list[str]:
    """The overrides without those by which a launcher tells jobs apart (`sweep`, `repeat`)."""
    return [override for override in overrides if override.split("=")[0] not in ("sweep", "repeat")]


def requested_fields(config: RunConfig) -> dict[str, Any]:
    """The requested settings of a run, by the names of a Row's fields."""
    run_dir = Path(config.job.run_dir)
    batch_sizes = config.data.get("batch_sizes") or None
    by_parts = config.compile.scope.value == "parts"
    return {
        "run_id": f"{run_dir.parent.name}/{run_dir.name}",
        "kind": config.job.kind.value,
        "sweep_id": config.sweep,
        "repeat": config.repeat,
        "model": config.job.model,
        "data": config.job.data,
        "batch_size": None if batch_sizes else config.data.get("batch_size"),
        "batch_sizes": batch_sizes,
        "compile_mode": config.compile.mode.value,
        "compile_dynamic": config.compile.dynamic,
        "compile_fullgraph": config.compile.fullgraph,
        "compile_backend": config.compile.backend,
        "compile_scope": config.compile.scope.value,
        "compile_parts": requested_parts(config.compile) if by_parts else None,
        "compile_mark_dynamic": [asdict(mark) for mark in config.compile.mark_dynamic] or None,
        "compile_max_recompiles": config.compile.max_recompiles,
        "compile_cache": config.compile.cache.value,
        "precision": config.amp.precision.value,
        "matmul_precision": config.amp.matmul_precision.value,
        "strategy": config.ddp.strategy.value,
        "accelerator": config.trainer.accelerator.value,
        "seed": config.seed,
        "deadline_ms": config.forward.deadline_ms,
        "fallback": config.forward.fallback or None,
        "overrides": run_overrides(config.job.overrides),
    }


def requested_parts(config: CompileConfig) -> list[dict[str, Any]]:
    """Each pattern of `compile.parts` with the settings that differ from those of `compile`."""
    requested = []
    for part in config.parts:
        entry: dict[str, Any] = {"match": part.match}
        for name in ("mode", "dynamic", "fullgraph", "backend"):
            value = getattr(part, name)
            if value != getattr(config, name):
                entry[name] = value
        requested.append(entry)
    return requested
