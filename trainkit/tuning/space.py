"""The settings that a race tries: each factor by itself first, then the promising ones together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from trainkit.config.factors import AUTO, BATCH_SIZE, MODE, Factor
from trainkit.config.schema import SETTINGS

PROMISING = 0.01  # relative gain of a value over the one that a run begins with
NUM_MODES = 2  # that other values are combined with
MOST_DOUBLINGS = 8  # of the batch size
CLOSE_SIZES = 1.25  # the smallest batch that does not fit, over the largest that does

COMPILED_ONLY = {name for name, declared in SETTINGS.items() if declared.facts.compiled_only}

Overrides = tuple[str, ...]


@dataclass(frozen=True)
class ArmSettings:
    """The overrides of an arm beside those of all arms, and its compile time in multiples of that of mode default."""

    overrides: Overrides
    compile: float = 1.0


@dataclass(frozen=True)
class Space:
    """The factors of a race, and the value of each setting that the run begins with; that of the mode always.

    A race begins with eager, unless the mode is fixed. The other factors are tried in mode `default`, or in the first
    of the modes. Values without an effect, as the scope of an eager run, are left out.
    """

    factors: Sequence[Factor]
    begins: Mapping[str, str]
    batch_size: int | None = None

    @property
    def base(self) -> ArmSettings:
        """What a race begins with."""
        return self._arm({})

    @property
    def reference(self) -> dict[str, str]:
        """The values beside which each value of the other factors is tried."""
        modes = self._values(MODE)
        if not modes:
            return {}
        return {MODE: "default" if "default" in modes else modes[0]}

    def screening(self) -> list[ArmSettings]:
        """The base, each mode, and each value of the other factors beside the reference; the cheapest first."""
        arms: dict[Overrides, ArmSettings] = {}
        choices = [self._beside(setting) | {setting: value} for setting, value in self._single_values()]
        for choice in [{}, self.reference, *choices]:
            arm = self._arm(choice)
            arms.setdefault(arm.overrides, arm)
        base, *others = arms.values()
        return [base, *sorted(others, key=lambda arm: arm.compile)]

    def effects(self) -> list[tuple[str, Overrides, Overrides]]:
        """Each value of a factor with the arm that has it and the arm without it."""
        pairs = []
        for setting, value in self._single_values():
            beside = self._beside(setting)
            with_value = self._arm(beside | {setting: value})
            pairs.append((f"{setting}={value}", with_value.overrides, self._arm(beside).overrides))
        return pairs

    def crossed(self, figures: Mapping[Overrides, float], most: int) -> list[ArmSettings]:
        """Combinations of the fastest modes with the promising values of the other factors, those with the least
        expected figures first. `figures` are the first ones of the arms of the screening.

        A combination is expected to gain what each of its values gained beside the reference.
        """
        reference = figures.get(self._arm(self.reference).overrides)
        if reference is None:
            return []
        modes = self._fastest_modes(figures)
        choices: list[list[tuple[str, str | None, float]]] = []
        for factor in self.factors:
            if factor.setting != MODE:
                choices.append([(factor.setting, None, 0.0), *self._promising(factor, figures, reference)])
        expected: dict[Overrides, tuple[float, ArmSettings]] = {}
        for mode_choice, mode_figure in modes:
            for combination in product(*choices):
                choice = dict(mode_choice)
                log_gain = 0.0
                for setting, value, gain in combination:
                    if value is not None:
                        choice[setting] = value
                        log_gain += gain
                arm = self._arm(choice)
                if arm.overrides not in figures:
                    expected[arm.overrides] = (mode_figure * math.exp(-log_gain), arm)
        best_first = sorted(expected.values(), key=lambda entry: entry[0])
        return [arm for _, arm in best_first[:most]]

    def batch_arm(self, size: int) -> ArmSettings:
        """The reference with another batch size."""
        return self._arm(self.reference | {BATCH_SIZE: str(size)})

    def next_batch_size(self, fits: Mapping[int, bool]) -> int | None:
        """The batch size to try next for `data.batch_size=auto`, None if the largest that fits is known well enough.
        `fits` has those that were tried."""
        if self.batch_size is None or not self._finds_batch_size():
            return None
        largest = max([size for size, does_fit in fits.items() if does_fit], default=self.batch_size)
        too_large = [size for size, does_fit in fits.items() if not does_fit]
        if not too_large:
            doubled = 2 * largest
            return doubled if doubled <= self.batch_size * 2**MOST_DOUBLINGS else None
        smallest = min(too_large)
        if smallest <= CLOSE_SIZES * largest:
            return None
        middle = (largest + smallest) // 2
        if middle > 16:
            middle -= middle % 8
        return middle if largest < middle < smallest else None

    def _finds_batch_size(self) -> bool:
        return AUTO in self._values(BATCH_SIZE)

    def _values(self, setting: str) -> list[str]:
        for factor in self.factors:
            if factor.setting == setting:
                return list(factor.values)
        return []

    def _single_values(self) -> list[tuple[str, str]]:
        """Each setting with each value that the base does not have."""
        values = []
        for factor in self.factors:
            for value in factor.values:
                if value not in (AUTO, self._begin(factor)):
                    values.append((factor.setting, value))
        return values

    def _beside(self, setting: str) -> dict[str, str]:
        """The values beside which those of a setting are tried."""
        return {} if setting == MODE else self.reference

    def _begin(self, factor: Factor) -> str:
        """The value of a factor in the base."""
        if factor.setting == MODE:
            return "eager"
        begins = self.begins[factor.setting]
        if factor.is_named and begins not in factor.values and AUTO not in factor.values:
            return next(iter(factor.values))
        return begins

    def _fastest_modes(self, figures: Mapping[Overrides, float]) -> list[tuple[dict[str, str], float]]:
        modes: list[dict[str, str]] = [{}]
        for mode in self._values(MODE):
            modes.append({MODE: mode})
        measured = []
        for choice in modes:
            figure = figures.get(self._arm(choice).overrides)
            if figure is not None:
                measured.append((choice, figure))
        return sorted(measured, key=lambda entry: entry[1])[:NUM_MODES]

    def _promising(
        self, factor: Factor, figures: Mapping[Overrides, float], reference: float
    ) -> list[tuple[str, str | None, float]]:
        """The value of a factor with the largest gain over the reference, on the log scale, if that is PROMISING."""
        gains = []
        for overrides, figure in figures.items():
            for value in self._tried_values(factor, overrides):
                if self._arm(self.reference | {factor.setting: value}).overrides == overrides:
                    gains.append((factor.setting, value, math.log(reference / figure)))
        best = max(gains, key=lambda entry: entry[2], default=None)
        if best is None or best[2] < math.log1p(PROMISING):
            return []
        return [best]

    def _tried_values(self, factor: Factor, overrides: Overrides) -> list[str]:
        """The values of a factor among the overrides of an arm; of `auto` these are sizes that were found."""
        prefix = f"{factor.setting}="
        return [override.removeprefix(prefix) for override in overrides if override.startswith(prefix)]

    def _arm(self, choice: Mapping[str, str]) -> ArmSettings:
        """The arm with these values, in the order of the factors. Of other factors it has the values of the base."""
        values = {MODE: self.begins[MODE]} | {factor.setting: self._begin(factor) for factor in self.factors}
        values |= choice
        is_eager = values[MODE] == "eager"
        overrides, compile_multiple = [], 1.0
        for factor in self.factors:
            setting, value = factor.setting, values[factor.setting]
            is_same = value == self.begins[setting] and setting != MODE
            if is_same or (is_eager and setting in COMPILED_ONLY):
                continue
            overrides.append(f"{setting}={value}")
            if value in factor.values:
                compile_multiple *= factor.values[value].compile
        return ArmSettings(tuple(overrides), 0.0 if is_eager else compile_multiple)
