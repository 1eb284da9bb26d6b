"""Composition of overrides into a typed and checked RunConfig."""

import operator
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, get_origin

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import setup_globals
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationKeyError

from trainkit.config.errors import TYPE_NAMES, ConfigError, refuse
from trainkit.config.manual import settings_help
from trainkit.config.open_groups import SHARED_DATA_SETTINGS
from trainkit.config.schema import SETTINGS, RunConfig
from trainkit.config.settings import typed_value
from trainkit.config.validation import check, input_mismatch


def _run_dir() -> str:
    """The run directory that Hydra has made; empty if it makes none (`--cfg job --resolve`)."""
    runtime = HydraConfig.get().runtime
    return "" if OmegaConf.is_missing(runtime, "output_dir") else str(runtime.output_dir)


def _search_path() -> list[str]:
    """The config directories and packages of `--config-dir` and `hydra.searchpath=[...]`."""
    added = []
    for source in HydraConfig.get().runtime.config_sources:
        if source.provider in ("command-line", "hydra.searchpath in command-line"):
            added.append(f"{source.schema}://{source.path}")
    return added


def _if(condition: Any, then: Any, otherwise: Any) -> Any:
    return then if condition else otherwise


def _sweep_name(name: str | None) -> str:
    return name or datetime.now().strftime("%Y-%m-%d_%H-%M-%S")


def _network_name(_root_: DictConfig) -> str:
    """The name of a run's network: the class if it was typed, else the label in its file, else the file's name."""
    hydra: Any = _root_.hydra if "hydra" in _root_ else HydraConfig.get()
    if any(override.lstrip("+").startswith("model._target_=") for override in hydra.overrides.task):
        return str(OmegaConf.select(_root_, "model._target_"))
    return str(OmegaConf.select(_root_, "model.label") or hydra.runtime.choices.model)


def _run_name(_root_: DictConfig) -> str:
    """The name of a run in W&B: model, mode, and what IN_RUN_NAME has. Settings at their default are left out unless
    they were typed: a sweep types those that it varies."""
    typed = {override.lstrip("+").partition("=")[0] for override in _root_.job.overrides}
    parts = [str(_root_.job.model), str(_root_.compile.mode)]
    for name, prefix in IN_RUN_NAME.items():
        value = OmegaConf.select(_root_, name)
        group = name.partition(".")[0]
        if value != SETTINGS[name].default or name in typed or group in typed:
            parts.append(prefix + typed_value(value))
    num_processes = os.environ.get("WORLD_SIZE", "1")  # under torchrun
    if num_processes != "1":
        parts.append(f"{num_processes}-processes")
    return "-".join(parts)


def _text_inputs(_root_: DictConfig) -> str:
    """What texts give: `tokens_and_mask` to a network that takes it, else `tokens`."""
    return "tokens_and_mask" if _root_.model.get("inputs") == "tokens_and_mask" else "tokens"


ConfigStore.instance().store(name="schema", node=RunConfig)
for shared, names in SHARED_DATA_SETTINGS.items():
    ConfigStore.instance().store(name=shared, node={name: SETTINGS[f"data.{name}"].default for name in names})
OmegaConf.register_new_resolver("run_dir", _run_dir, replace=True)
OmegaConf.register_new_resolver("search_path", _search_path, replace=True)
OmegaConf.register_new_resolver("settings_help", settings_help, replace=True)  # of conf/hydra/help/trainkit.yaml
OmegaConf.register_new_resolver("if", _if, replace=True)
OmegaConf.register_new_resolver("add", operator.add, replace=True)
OmegaConf.register_new_resolver("network_name", _network_name, replace=True)  # of conf/config.yaml
OmegaConf.register_new_resolver("text_inputs", _text_inputs, replace=True)  # of conf/data
OmegaConf.register_new_resolver("run_name", _run_name, replace=True)  # of conf/logger/wandb.yaml
OmegaConf.register_new_resolver("sweep_name", _sweep_name, use_cache=True, replace=True)

IN_RUN_NAME = {"amp.precision": "", "compile.dynamic": "dynamic=", "ddp.strategy": "strategy="}  # with a prefix
JOB_SETTINGS = ("kind", "runs_dir")  # of job: the others are what Hydra knows of it
FORWARD = "bench"  # conf/bench.yaml, of scripts/bench.py
CONF = Path(__file__).parents[1] / "conf"
CONTAINERS = {list: ("a list, [VALUE, ...]", list | ListConfig), dict: ("a mapping, {NAME: VALUE}", dict | DictConfig)}


@contextmanager
def hydra_apart() -> Iterator[None]:
    """A context in which configs are composed beside the one that Hydra's main, of anyone, has composed."""
    hydra_config, hydra = HydraConfig.instance().cfg, GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        HydraConfig.instance().cfg, GlobalHydra.instance().hydra = hydra_config, hydra


def compose_config(
    overrides: list[str], conf: Path = CONF, run_dir: str | None = None, name: str = "config"
) -> RunConfig:
    """Compose conf/<name>.yaml with overrides, without Hydra's command line. The run directory is that of
    hydra.run.dir if it is None. Raises as `run_config` does."""
    setup_globals()
    with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
        cfg = compose(name, overrides, return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        cfg.job.run_dir = str(cfg.hydra.run.dir) if run_dir is None else run_dir
        with open_dict(cfg):
            del cfg["hydra"]
        return run_config(cfg)


def run_config(cfg: DictConfig) -> RunConfig:
    """Return the typed and checked form of a composed config. Raises ConfigError with every complaint at once."""
    refuse(_launcher_settings_of_one_run())
    refuse(_facts_of_the_job())
    refuse(_numbers_for_booleans(cfg))
    refuse(_unknown_settings(cfg))
    refuse(_values_for_containers(cfg))
    for override in cfg.job.overrides:  # the row and its complaints name the class that runs
        if override.lstrip("+").startswith("objective._target_="):
            if cfg.objective._target_ is None:
                raise ConfigError("objective._target_ = null: expected the name of a class or function")
            cfg.job.objective = cfg.objective._target_
    mismatch = input_mismatch(cfg.job.model, cfg.job.data, cfg.model.get("inputs"), cfg.data.get("inputs"))
    if mismatch:
        raise ConfigError(mismatch)
    try:
        config = OmegaConf.to_object(cfg)
    except InterpolationKeyError as error:
        raise ConfigError(_missing_value(error)) from None
    assert isinstance(config, RunConfig)
    check(config)
    return config


def _missing_value(error: InterpolationKeyError) -> str:
    """Which value a setting takes from another one that is not there: `model.channels = ${data.channels}: ...`."""
    source = re.search(r"'([\w.]+)'", str(error.msg))
    if source is None:
        return f"{error.full_key}: {error.msg}"
    return f"{error.full_key} = ${{{source[1]}}}: there is no {source[1]}; add +{source[1]}=... or set {error.full_key}"


def _launcher_settings_of_one_run() -> Iterator[str]:
    """Complaints about settings of the launcher in a run that is not launched."""
    hydra = HydraConfig.get()
    if hydra.mode != RunMode.RUN:
        return
    for override in hydra.overrides.hydra:
        if override.startswith("hydra.launcher."):
            yield f"{override.replace('=', ' = ', 1)}: belongs to a sweep; use it with -m"


def _facts_of_the_job() -> Iterator[str]:
    """Complaints about overrides of what Hydra says of the job: the row would name what did not run."""
    for override in HydraConfig.get().overrides.task:
        setting, _, value = override.lstrip("+~").partition("=")
        group, _, name = setting.partition(".")
        if group == "job" and name not in JOB_SETTINGS:
            way_out = f"choose it with {name}={value}" if name in ("model", "data", "objective") else "leave it out"
            yield f"{setting} = {value}: is what trainkit says of a job; {way_out}"


def _numbers_for_booleans(cfg: DictConfig) -> Iterator[str]:
    """Complaints about numbers given for true or false; OmegaConf takes all but 0 for true."""
    for override in cfg.job.overrides:
        setting, _, value = override.lstrip("+").partition("=")
        if re.fullmatch(r"[-+]?\d+", value) and isinstance(OmegaConf.select(cfg, setting), bool):
            yield f"{setting} = {value}: expected {TYPE_NAMES[bool]}"


def _values_for_containers(cfg: DictConfig) -> Iterator[str]:
    """Complaints about a list or a mapping that is none: OmegaConf does not check where an interpolation leads."""
    for name, setting in SETTINGS.items():
        container = get_origin(setting.annotation)
        if container not in CONTAINERS:
            continue
        expected, containers = CONTAINERS[container]
        value = OmegaConf.select(cfg, name, throw_on_resolution_failure=False)
        if _is_interpolation(cfg, name) and value is not None and not isinstance(value, containers):
            yield f"{name} = {value}: expected {expected}"


def _is_interpolation(cfg: DictConfig, name: str) -> bool:
    parent, _, key = name.rpartition(".")
    node = OmegaConf.select(cfg, parent, throw_on_resolution_failure=False) if parent else cfg
    return isinstance(node, DictConfig) and key in node and OmegaConf.is_interpolation(node, key)


def _unknown_settings(cfg: DictConfig) -> Iterator[str]:
    """Complaints about settings that `+` has added to typed nodes, which nobody reads, and about a value in place of
    such a node."""
    groups = {group.name: group.type for group in fields(RunConfig)}
    unknown = [str(key) for key in cfg if key not in groups]
    for name, group in groups.items():
        if not is_dataclass(group):
            continue
        declared = {field.name for field in fields(group)}
        node = cfg[name]
        if not isinstance(node, DictConfig):
            yield f"{name} = {node}: expected settings, {name}.NAME=VALUE, not a value; leave it out"
            continue
        for key in node:
            if key not in declared:
                unknown.append(f"{name}.{key!s}")
    for setting in sorted(unknown):
        yield f"{setting} = {OmegaConf.select(cfg, setting)}: no such setting; see --help"
