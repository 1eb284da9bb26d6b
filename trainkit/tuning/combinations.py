"""Combinations of values that gained something by themselves."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from trainkit.config.factors import MODE, Factor
from trainkit.tuning.space import ArmSettings, Overrides, Space, value_in

PROMISING = 0.01  # relative gain of a value over the reference
NUM_MODES = 2  # that other values are combined with


@dataclass(frozen=True)
class Gain:
    """The choice of a value, and its gain over the reference on the log scale."""

    choice: dict[str, str]
    log_gain: float


NO_VALUE = Gain({}, 0.0)


def combinations(space: Space, figures: Mapping[Overrides, float]) -> list[ArmSettings]:
    """Combinations of the fastest modes with the promising values of the other factors, those with the least expected
    figures first. `figures` are the first figures of the arms of the screening.

    A combination is expected to gain what each of its values gained over the reference. A value that another one needs
    has its gain within that of the other.
    """
    reference = figures.get(space.arm(space.reference).overrides)
    if reference is None:
        return []
    gains = []
    for factor in space.factors:
        if factor.setting != MODE:
            gains.append([NO_VALUE, *_promising(space, factor, figures, reference)])
    expected: dict[Overrides, tuple[float, ArmSettings]] = {}
    for mode in _fastest_modes(space, figures):
        mode_figure = figures[space.arm(mode).overrides]
        for combined in _combined(mode, gains):
            arm = space.arm(combined.choice)
            if arm.overrides not in figures:
                expected[arm.overrides] = (mode_figure * math.exp(-combined.log_gain), arm)
    best_first = sorted(expected.values(), key=lambda entry: entry[0])
    return [arm for _, arm in best_first]


def _combined(mode: dict[str, str], gains: Sequence[Sequence[Gain]]) -> Iterator[Gain]:
    """The choices of a mode with a gain of each factor, if these agree on each setting, with what they gain over the
    mode."""
    for combination in product(*gains):
        choice = dict(mode)
        for gain in combination:
            choice |= gain.choice
        if any(not mode.items() | gain.choice.items() <= choice.items() for gain in combination):
            continue
        log_gain = 0.0
        for gain in combination:
            if not any(gain.choice.items() < other.choice.items() for other in combination):
                log_gain += gain.log_gain
        yield Gain(choice, log_gain)


def _fastest_modes(space: Space, figures: Mapping[Overrides, float]) -> list[dict[str, str]]:
    """The choices of the modes with the least figures; no choice is the base's mode."""
    choices: list[dict[str, str]] = [{}]
    for mode in space.values(MODE):
        choices.append(space.reference | {MODE: mode})
    measured = [choice for choice in choices if space.arm(choice).overrides in figures]
    return sorted(measured, key=lambda choice: figures[space.arm(choice).overrides])[:NUM_MODES]


def _promising(space: Space, factor: Factor, figures: Mapping[Overrides, float], reference: float) -> list[Gain]:
    """The value of a factor that gains most over the reference, if it is PROMISING."""
    gains = []
    for overrides, figure in figures.items():
        value = value_in(overrides, factor.setting)
        if value is None:
            continue
        choice = space.choice_of(factor, value)
        if space.arm(space.reference | choice).overrides == overrides:
            gains.append(Gain(choice, math.log(reference / figure)))
    best = max(gains, key=lambda gain: gain.log_gain, default=NO_VALUE)
    if best.log_gain < math.log1p(PROMISING):
        return []
    return [best]
