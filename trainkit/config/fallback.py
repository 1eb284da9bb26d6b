"""Composition of the stages that `forward.fallback` names after the run's own."""

import re
from dataclasses import fields
from pathlib import Path

from trainkit.config.complaints import compose_typed
from trainkit.config.composition import FORWARD, hydra_apart
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.schema import OF_A_STAGE, POLICIES, CompileConfig, RunConfig
from trainkit.config.settings import default_of, in_groups
from trainkit.config.validation import input_mismatch

# At the spaces before a setting's name: a list of parts has spaces of its own.
OVERRIDE = re.compile(r"\S.*?(?=\s+[\w.@/+~-]+=|\s*$)")


def compose_fallback(config: RunConfig, conf: Path) -> list[RunConfig]:
    """Compose each stage of `forward.fallback` on top of the run's own overrides. The run's `model.*` and `ckpt_path`
    do not hold for a stage with another model. Raises ConfigError with every complaint at once."""
    stages, complaints = [], []
    for settings in config.forward.fallback:
        try:
            with hydra_apart():
                stages.append(_compose_stage(config, OVERRIDE.findall(settings), conf))
        except ConfigError as error:
            for complaint in error.complaints:
                complaints.append(f"forward.fallback, {complaint}")
    refuse(complaints)
    return stages


def _compose_stage(config: RunConfig, overrides: list[str], conf: Path) -> RunConfig:
    names = {setting_name(override) for override in overrides}
    if not names:
        names = {"''"}
    complaints = []
    for name in sorted(names):
        if not in_groups(name, OF_A_STAGE):
            complaints.append(f"{name}: a stage sets nothing but {', '.join(OF_A_STAGE)}; leave it out")
    refuse(complaints)
    stage = compose_typed(_inherited(config, names) + overrides, conf, config.job.run_dir, FORWARD)
    _check_stage(stage, config, overrides)
    return stage


def _inherited(config: RunConfig, replaced: set[str]) -> list[str]:
    """The run's own overrides that hold for a stage, and its own config directories."""
    replaced = replaced | {"forward.fallback"}
    if "model" in replaced:
        replaced.add("ckpt_path")
    inherited = [override for override in config.job.overrides if not in_groups(setting_name(override), replaced)]
    if config.job.search_path:
        inherited.append(f"hydra.searchpath=[{','.join(config.job.search_path)}]")
    inherited.append("forward.late=wait")  # a stage by itself has no other that answers for it
    return inherited


def _check_stage(stage: RunConfig, config: RunConfig, overrides: list[str]) -> None:
    """Raise ConfigError if a stage cannot serve calls of the run."""
    # The inputs of data=synthetic follow the network; the run's batches do not follow a stage.
    mismatch = input_mismatch(stage.job.model, stage.job.data, stage.model.get("inputs"), config.data.get("inputs"))
    if mismatch:
        raise ConfigError(mismatch)
    if stage.data != config.data:
        raise ConfigError(
            f"{' '.join(overrides)}: is called with other batches than the run; choose one that fits the data"
        )
    if stage.compile.cache != config.compile.cache:
        raise ConfigError(
            f"compile.cache = {stage.compile.cache}: all stages compile into the run's cache, which is "
            f"{config.compile.cache}; set it for the run, or leave it out"
        )
    for declared in fields(CompileConfig):
        value = getattr(stage.compile, declared.name)
        if declared.name in ("max_recompiles", *POLICIES) and value != default_of(declared):
            raise ConfigError(
                f"compile.{declared.name} = {value}: is of one network alone; leave it out with forward.fallback"
            )


def setting_name(override: str) -> str:
    """The setting that an override sets."""
    return override.partition("=")[0].lstrip("+~")
