"""The factors that a race may vary: conf/tune/*.yaml, one file a factor, and the values that a user typed.

A file names a setting, the values that are worth a try, the conditions for them, and their compile time in multiples of
that of mode `default`. A run begins with a value of each setting, and the others are tried.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from trainkit.config.errors import ConfigError
from trainkit.config.schema import SETTINGS, TRAINING_ONLY, RunConfig
from trainkit.config.settings import in_groups, typed_value, value_of

AUTO = "auto"
BATCH_SIZE = "data.batch_size"
MODE = "compile.mode"
# The conditions for factors and values, by the names that conf/tune has for them, with what to say of them.
CONDITIONS = {
    "gpu": "needs a GPU",
    "images": "needs images",
    "attention": "needs attention, and no model.num_heads tells of any; name it if the network has some",
    "half_precision": "needs half precision, as with amp=bf16",
    "repeated_blocks": "needs repeated blocks, and no model.depth tells of any; name it if the network has some",
    "varying_shapes": "needs batches of varying shapes",
    "fused_optimizer": "needs an optimizer with fused and foreach kernels",
    "several_processes": "needs several processes",
}
# Groups and settings that change the training, of those that have no file in conf/tune.
TRAINING_CHANGES = (
    "amp", "optimizer", "trainer.gradient_clip_val", "trainer.schedule", "trainer.warmup_steps",
)  # fmt: skip
OPTIMIZER_KERNELS = ("optimizer.foreach", "optimizer.fused")


@dataclass
class FactorValue:
    """The conditions of a value, the values of other settings that it needs, and its compile time in multiples of that
    of mode `default`: `compile` of all stages, `inductor` of those of inductor alone. What `saves_memory` is tried
    with settings that take too much, unless it is named."""

    needs: list[str] = field(default_factory=list)
    together: dict[str, str] = field(default_factory=dict)
    compile: float = 1.0
    inductor: float = 1.0
    saves_memory: bool = False


@dataclass
class Factor:
    """A setting, or a group, and the values that are tried; `changes_training`: only if it is named.

    `is_named`: the values are a user's, and the one that a run begins with is tried only if it is among them.
    """

    setting: str = "???"
    values: dict[str, FactorValue] = field(default_factory=dict)
    needs: list[str] = field(default_factory=list)
    changes_training: bool = False
    is_named: bool = False


@dataclass(frozen=True)
class LeftOut:
    """Settings that are not tried, and why."""

    settings: str
    reason: str


@dataclass(frozen=True)
class Typed:
    """The overrides of a command line: those with one value, and the values of those with several, by setting: with a +
    before it if it belongs to an open group, as +optimizer.betas."""

    fixed: list[str]
    swept: dict[str, list[str]]

    @property
    def fixed_settings(self) -> set[str]:
        return {override.lstrip("+~").partition("=")[0] for override in self.fixed}

    def allows(self, setting: str, value: str) -> bool:
        """Whether a setting may have this value: it was not typed, or with this value."""
        if setting in self.swept:
            return value in self.swept[setting]
        return setting not in self.fixed_settings or f"{setting}={value}" in self.fixed


def split_typed(overrides: Iterable[str]) -> Typed:
    """Tell overrides of one value from those of several; `data.batch_size=auto` is of several. Raises ConfigError for a
    range of values."""
    fixed: list[str] = []
    swept: dict[str, list[str]] = {}
    parser = OverridesParser.create()
    for typed in overrides:
        override = parser.parse_override(typed)
        name = override.get_key_element()
        if typed == f"{BATCH_SIZE}={AUTO}":
            swept[name] = [AUTO]
        elif not override.is_sweep_override():
            fixed.append(typed)
        elif override.is_discrete_sweep():
            values = map(str, override.sweep_string_iterator())
            # Hydra's sweeps capitalise true and false.
            if name.lstrip("+") in SETTINGS:
                name = name.lstrip("+")
            swept[name] = [value.lower() if value in ("True", "False") else value for value in values]
        else:
            raise ConfigError(f"{typed.replace('=', ' = ', 1)}: a race tries single values; list them, as in a,b,c")
    return Typed(fixed, swept)


def read_factors(folders: Iterable[Path]) -> list[Factor]:
    """The factors of `FOLDER/tune/*.yaml`, the first folder's of a name. Raises ConfigError for other files."""
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("tune/*.yaml")):
            paths.setdefault(path.stem, path)
    factors = []
    for path in paths.values():
        try:
            factor = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Factor), OmegaConf.load(path)))
        except OmegaConfBaseException as error:
            raise ConfigError(f"{path}: is no factor: {str(error).splitlines()[0]}") from error
        assert isinstance(factor, Factor)
        _check_conditions(factor, path)
        factors.append(factor)
    return factors


def _check_conditions(factor: Factor, path: Path) -> None:
    needs = list(factor.needs)
    for value in factor.values.values():
        needs += value.needs
    for need in needs:
        if need not in CONDITIONS:
            raise ConfigError(f"{path}: needs {need}: expected one of {', '.join(CONDITIONS)}")


def conditions_of(config: RunConfig, num_gpus: int, num_processes: int) -> set[str]:
    """The conditions that a run meets."""
    data, model = config.data, config.model
    met = {
        "gpu": num_gpus > 0 and config.trainer.accelerator != "cpu",
        "images": "images" in (data.get("inputs"), model.get("inputs")),
        "attention": "num_heads" in model,
        "half_precision": "16" in config.amp.precision,
        "repeated_blocks": int(model.get("depth") or 0) > 1,
        "varying_shapes": bool(data.get("batch_sizes") or data.get("seq_lens"))
        or ("val_path" in data and data.get("padding") in ("longest", "buckets")),
        "fused_optimizer": "foreach" in config.optimizer,
        "several_processes": num_processes > 1,
    }
    return {name for name, holds in met.items() if holds}


def narrow(
    factors: Sequence[Factor], typed: Typed, conditions: Collection[str], kind: str
) -> tuple[list[Factor], list[LeftOut]]:
    """The factors to vary, and those of conf/tune that are left out, with the reason.

    A setting with one typed value is fixed. Several typed values are tried as they are: who names them wants them.
    Raises ConfigError for typed values of settings that make it another work.
    """
    by_setting = {factor.setting: factor for factor in factors}
    varied, left_out = [], []
    for setting, values in typed.swept.items():
        _refuse_other_work(setting.lstrip("+"), values)
        facts = by_setting.get(setting, Factor(setting, changes_training=_changes_training(setting.lstrip("+"))))
        own_facts = {value: replace(facts.values.get(value, FactorValue()), saves_memory=False) for value in values}
        varied.append(replace(facts, values=own_facts, is_named=True))
    for factor in factors:
        if factor.setting in typed.swept or factor.setting in typed.fixed_settings:
            continue
        reason = _reason_against(factor, conditions, kind)
        if reason is None:
            able, unable = _split_values(factor, conditions, typed)
            left_out += unable
            if able:
                varied.append(replace(factor, values=able))
        else:
            left_out.append(LeftOut(factor.setting, reason))
    return varied, left_out


def drop_constant(factors: Sequence[Factor], begins: Mapping[str, str]) -> tuple[list[Factor], list[LeftOut]]:
    """The factors with another value than the one that the run begins with, and the others, with the reason. The mode
    is none of these: a race begins with eager. Where eager is the only mode, those of compiled runs have no effect."""
    varied, left_out = [], []
    is_compiled = begins.get(MODE) != "eager" or any(factor.setting == MODE for factor in factors)
    for factor in factors:
        value = begins[factor.setting]
        declared = SETTINGS.get(factor.setting)
        if declared is not None and declared.facts.compiled_only and not is_compiled:
            left_out.append(LeftOut(factor.setting, "has no effect on an eager run"))
        elif factor.is_named or factor.setting == MODE or set(factor.values) != {value}:
            varied.append(factor)
        else:
            left_out.append(LeftOut(factor.setting, f"the run begins with {value}, and no other value can be tried"))
    return varied, left_out


def _changes_training(setting: str) -> bool:
    """Whether a setting without a file in conf/tune changes the training."""
    return in_groups(setting, TRAINING_CHANGES) and setting not in OPTIMIZER_KERNELS


def _reason_against(factor: Factor, conditions: Collection[str], kind: str) -> str | None:
    if kind == "forward" and in_groups(factor.setting, TRAINING_ONLY):
        return "belongs to training"
    for need in factor.needs:
        if need not in conditions:
            return CONDITIONS[need]
    if factor.changes_training:
        return f"changes the training; name it, as in {factor.setting}={','.join(factor.values)}"
    return None


def _split_values(
    factor: Factor, conditions: Collection[str], typed: Typed
) -> tuple[dict[str, FactorValue], list[LeftOut]]:
    able, unable = {}, []
    for value, facts in factor.values.items():
        reason = _reason_against_value(facts, conditions, typed)
        if reason is None:
            able[value] = facts
        else:
            unable.append(LeftOut(f"{factor.setting}={value}", reason))
    return able, unable


def _reason_against_value(facts: FactorValue, conditions: Collection[str], typed: Typed) -> str | None:
    for need in facts.needs:
        if need not in conditions:
            return CONDITIONS[need]
    for setting, value in facts.together.items():
        if not typed.allows(setting, value):
            return f"needs {setting}={value}"
    return None


def _refuse_other_work(setting: str, values: Sequence[str]) -> None:
    declared = SETTINGS.get(setting) or SETTINGS.get(setting.partition(".")[0])
    if declared is not None and declared.is_work and setting != BATCH_SIZE:
        raise ConfigError(
            f"{setting} = {','.join(values)}: is other work, and a race compares ways to do the same; give one value"
        )
    if setting == BATCH_SIZE and AUTO in values and len(values) > 1:
        raise ConfigError(f"{setting} = {','.join(values)}: auto finds the sizes itself; use {setting}=auto")


def begins_with(setting: str, config: RunConfig, choices: Mapping[str, str]) -> str:
    """The value that a run begins with, as a user types it: of a group (`amp`) the file's name."""
    if setting in choices:
        return choices[setting]
    return typed_value(value_of(config, setting.lstrip("+")))
