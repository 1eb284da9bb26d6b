"""The settings that a race tries: each value of each factor by itself."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainkit.config.factors import AUTO, BATCH_SIZE, MODE, Factor
from trainkit.config.schema import SETTINGS

COMPILED_ONLY = {name for name, declared in SETTINGS.items() if declared.facts.compiled_only}

SEARCHED = (BATCH_SIZE, AUTO)  # stands for sizes that are not known yet

OPTIMIZER = re.compile(r"\+?optimizer[.=]")

Overrides = tuple[str, ...]


@dataclass(frozen=True)
class ArmSettings:
    """The overrides of an arm beside those of all arms, and its compile time in multiples of that of mode default:
    `compile` of all stages, `inductor` of those of inductor alone."""

    overrides: Overrides
    compile: float = 1.0
    inductor: float = 1.0

    @property
    def compiled(self) -> Overrides:
        """The overrides that change what is compiled. The optimizer is not compiled."""
        return tuple(override for override in self.overrides if not OPTIMIZER.match(override))

    @property
    def compile_multiple(self) -> float:
        """The most that the compile takes: all of it in inductor."""
        return self.compile * self.inductor


@dataclass(frozen=True)
class Space:
    """The factors of a race. `begins` are the values of the run that the race begins with, by setting.

    A race begins with eager, unless the mode is fixed. The values of the other factors are tried in mode `default`, or
    in the first of the compiled modes, or beside the values of `other_reference`. An arm has no value without an
    effect, as the scope of an eager run.
    """

    factors: Sequence[Factor]
    begins: Mapping[str, str]
    other_reference: Mapping[str, str] | None = None

    @property
    def base(self) -> ArmSettings:
        """The first arm."""
        return self.arm({})

    @property
    def reference(self) -> dict[str, str]:
        """The values beside which the others are tried: the mode, a compiled one if there is one; empty if the mode is
        fixed."""
        if self.other_reference is not None:
            return dict(self.other_reference)
        modes = self.values(MODE)
        if not modes:
            return {}
        compiled = [mode for mode in modes if mode != "eager"]
        return {MODE: "default" if "default" in modes else (compiled or modes)[0]}

    @property
    def reference_mode(self) -> str:
        """The mode in which the other factors are tried, fixed or not."""
        return self.reference.get(MODE, self.begins[MODE])

    def values(self, setting: str) -> list[str]:
        """The values of a setting that are tried."""
        for factor in self.factors:
            if factor.setting == setting:
                return list(factor.values)
        return []

    def screening(self) -> list[ArmSettings]:
        """The base, then the reference, each mode, and each value of the other factors; what compiles much longer than
        mode default comes last."""
        choices = self._single_choices()
        modes = [choice for (setting, _), choice in choices.items() if setting == MODE]
        arms: dict[Overrides, ArmSettings] = {}
        for choice in [{}, self.reference, *modes, *choices.values()]:
            arm = self.arm(choice)
            arms.setdefault(arm.overrides, arm)
        base, *candidates = arms.values()
        return [base, *sorted(candidates, key=lambda arm: max(1, round(arm.compile_multiple)))]

    @property
    def memory_savers(self) -> dict[str, str]:
        """The values that save memory, by setting."""
        savers = {}
        for factor in self.factors:
            for value, facts in factor.values.items():
                if facts.saves_memory and value != self._begin(factor):
                    savers[factor.setting] = value
        return savers

    def effects(self) -> list[tuple[str, Overrides, Overrides]]:
        """Each value of a factor, the arm that has it, and the arm that differs by this value alone."""
        effects = []
        for (setting, value), choice in self._single_choices().items():
            without = {name: chosen_value for name, chosen_value in choice.items() if name != setting}
            effects.append((f"{setting}={value}", self.arm(choice).overrides, self.arm(without).overrides))
        return effects

    def choice_of(self, factor: Factor, value: str) -> dict[str, str]:
        """A value with the values that it needs."""
        choice = {factor.setting: value}
        if value in factor.values:
            choice |= factor.values[value].together
        return choice

    def arm(self, choice: Mapping[str, str]) -> ArmSettings:
        """The arm with the chosen values, and the base's values of the other factors. Its overrides have the order of
        the factors."""
        values = {MODE: self.begins[MODE]}
        for factor in self.factors:
            values[factor.setting] = choice.get(factor.setting, self._begin(factor))
        is_eager = values[MODE] == "eager"
        overrides, compile_times, inductor_times = [], 1.0, 1.0
        for factor in self.factors:
            setting, value = factor.setting, values[factor.setting]
            if is_eager and setting in COMPILED_ONLY:
                continue
            if value in factor.values:
                compile_times *= factor.values[value].compile
                inductor_times *= factor.values[value].inductor
            is_same = value == self.begins[setting] and setting != MODE
            if not is_same:
                overrides.append(f"{setting}={value}")
        return ArmSettings(tuple(overrides), 0.0 if is_eager else compile_times, inductor_times)

    def changes_training(self, overrides: Overrides) -> list[str]:
        """Those of the overrides of an arm that change the training."""
        settings = {factor.setting for factor in self.factors if factor.changes_training}
        return [override for override in overrides if override.partition("=")[0] in settings]

    def _single_choices(self) -> dict[tuple[str, str], dict[str, str]]:
        """By setting and value: the choice of a value that the base does not have, beside the reference."""
        choices = {}
        for factor in self.factors:
            for value in factor.values:
                if value != self._begin(factor) and (factor.setting, value) != SEARCHED:
                    choices[factor.setting, value] = self.reference | self.choice_of(factor, value)
        return choices

    def _begin(self, factor: Factor) -> str:
        """The value of a factor in the base."""
        if factor.setting == MODE:
            return "eager"
        begins = self.begins[factor.setting]
        is_searched = factor.setting == BATCH_SIZE and AUTO in factor.values
        if factor.is_named and begins not in factor.values and not is_searched:
            return next(iter(factor.values))
        return begins


def saves_memory(space: Space, overrides: Overrides) -> bool:
    """Whether an arm of a space is tried for its memory alone."""
    values = chosen_values(overrides)
    for setting, value in space.memory_savers.items():
        if values.get(setting) == value != space.reference.get(setting):
            return True
    return False


def value_in(overrides: Overrides, setting: str) -> str | None:
    """The value of a setting among the overrides of an arm."""
    return chosen_values(overrides).get(setting)


def chosen_values(overrides: Iterable[str]) -> dict[str, str]:
    """The values of an arm by setting."""
    return dict(override.split("=", 1) for override in overrides)
