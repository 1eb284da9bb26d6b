"""The file `compile.artifacts` of a run: loaded at its start if it exists, else written at its end. All ranks call
`load_artifacts` and `save_artifacts`."""

import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from trainkit.compiler import artifacts
from trainkit.compiler.artifacts import BrokenArtifactsError, Fingerprint, ForeignArtifactsError
from trainkit.config.schema import SETTINGS, RunConfig
from trainkit.config.settings import dotted, in_groups, typed_value, value_of
from trainkit.distributed.collectives import gather, num_ranks, rank
from trainkit.metrics.environment import machine_columns
from trainkit.results.effective import CompileArtifacts

MACHINE = ("device_name", "torch_version", "triton_version", "cuda_version", "python_version")
COMPILED = (  # settings that decide what is compiled
    "compile",
    "amp",
    "ddp",
    "trainer.activation_checkpointing",
    "trainer.attention",
    "trainer.channels_last",
    "trainer.deterministic",
)
NOT_COMPILED = ("compile.artifacts", "compile.cache")
NOT_SHAPES = (  # settings of the data with which the batches have the same shapes, and are prepared by the same code
    *("data.path", "data.val_path", "data.cache_dir", "data.val_fraction", "data.num_workers", "data.seed"),
    *("data.num_batches", "data.num_val_batches", "data.num_distinct"),
)


def is_requested(config: RunConfig) -> bool:
    return config.compile.artifacts is not None and config.compile.mode != "eager"


def artifacts_path(config: RunConfig, device: torch.device) -> Path:
    """The file `compile.artifacts`. In a folder its name has the digest of the fingerprint and of the number of ranks,
    by which DDP splits the graphs and collectives are compiled: each setting and kind of machine has its own file."""
    requested = str(config.compile.artifacts)
    path = Path(requested)
    if not (requested.endswith("/") or path.is_dir()):
        return path
    digest = artifacts.digest(fingerprint(config, device) | {"num_ranks": str(num_ranks())})
    return path / f"{config.job.model.replace('/', '-')}-{digest}.bin"


def load_artifacts(config: RunConfig, device: torch.device) -> CompileArtifacts:
    """Load the file into the compile cache, once for each cache, before any rank compiles. Returns rank 0's columns:
    empty without a file."""
    if not is_requested(config):
        return CompileArtifacts()
    cache = platform.node(), os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    loads = gather(cache).index(cache) == rank()  # ranks that share a folder wait for the first of them
    path = artifacts_path(config, device)
    loaded = CompileArtifacts()
    if loads and path.exists():
        loaded = _load(path, fingerprint(config, device))
    return gather(loaded)[0]


def save_artifacts(config: RunConfig, device: torch.device) -> CompileArtifacts:
    """Write the code that the ranks have compiled. Ranks with the same device have the same keys: one of them is
    enough."""
    contributes = gather(str(device)).index(str(device)) == rank()
    blob = None
    if contributes:
        blob = artifacts.collect()
    blobs = gather(blob)
    if rank() > 0:
        return CompileArtifacts()
    compiled = [blob for blob in blobs if blob is not None]
    path = artifacts_path(config, device)
    if not compiled:
        return _unused(path, "unwritten", "torch has put nothing into its cache")
    try:
        size = artifacts.write(path, fingerprint(config, device), compiled)
    except OSError as error:
        return _unused(path, "unwritten", str(error))
    return CompileArtifacts(artifacts="written", artifacts_bytes=size)


def fingerprint(config: RunConfig, device: torch.device) -> Fingerprint:
    """The versions, the GPU and the settings that decide what is compiled."""
    machine = machine_columns(device)
    values: dict[str, Any] = {name: machine[name] for name in MACHINE}
    values["model"] = config.model
    for name, value in dotted({"data": config.data, "objective": config.objective}).items():
        if name not in NOT_SHAPES:
            values[name] = value
    for setting in SETTINGS.values():
        is_compiled = in_groups(setting.name, COMPILED) and setting.name not in NOT_COMPILED
        if is_compiled and not setting.is_group and not setting.facts.silent:
            values[setting.name] = value_of(config, setting.name)
    return {name: typed_value(value) for name, value in values.items()}


def _load(path: Path, expected: Fingerprint) -> CompileArtifacts:
    try:
        size = artifacts.load(path, expected)
    except ForeignArtifactsError as error:
        return _unused(path, "foreign", str(error))
    except (BrokenArtifactsError, OSError) as error:
        return _unused(path, "broken", str(error))
    return CompileArtifacts(artifacts="loaded", artifacts_bytes=size)


def _unused(path: Path, state: str, reason: str) -> CompileArtifacts:
    """The columns of a file that was not loaded or not written, and one line about it."""
    if rank() == 0:
        print(f"compile.artifacts = {path}: {state}: {reason}", file=sys.stderr)
    return CompileArtifacts(artifacts=state, artifacts_reason=reason)
