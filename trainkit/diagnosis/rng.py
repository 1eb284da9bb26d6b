"""Find random numbers of Python that a compiled step repeats: torch draws them once, while it compiles.

Torch does so without a graph break or an error: with the numbers of a generator that random.Random made
(https://github.com/pytorch/pytorch/issues/145445), and with random.shuffle and random.sample if they are compiled
(https://github.com/pytorch/pytorch/issues/197085). The steps themselves show it, whatever torch's version is.
"""

import random
import sys
import traceback
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from trainkit.compiler.source import SourceLocation, source_location, user_location
from trainkit.config.schema import Mode
from trainkit.diagnosis.trial import Subject, Trial

DRAWING = ("random", "getrandbits")  # the C functions through which Python's generator draws


@dataclass(frozen=True)
class Draw:
    """A generator that an eager step draws from, and the line of the user's code."""

    generator: random.Random
    location: SourceLocation


@dataclass(frozen=True)
class EagerDraws:
    """The draws of an eager trial from generators whose state each eager step changes."""

    trial: Trial
    draws: list[Draw]

    def repeated_in(self, compiled: Trial) -> list[SourceLocation]:
        """The locations at which a compiled trial, after its steps, draws from a generator whose state stays the same.

        Missed are a repeated draw from a generator that is also drawn from otherwise, and draws in C code other than
        Python's own generator. A draw that only eager steps make (`if not torch.compiler.is_compiling()`) is reported
        wrongly.
        """
        generators = [compiled.counterpart(self.trial, draw.generator) for draw in self.draws]
        compiled.first_step()  # a step in which torch restores an earlier state
        states = [generator.getstate() for generator in generators]
        compiled.first_step()
        locations = []
        for draw, generator, state in zip(self.draws, generators, states, strict=True):
            if generator.getstate() == state and draw.location not in locations:
                locations.append(draw.location)
        return locations


def record_draws(subject: Subject, phase: str) -> EagerDraws | None:
    """The draws of two eager steps; None, and no copy of the network is kept, if there are none."""
    trial = Trial(subject, phase, replace(subject.config.compile, mode=Mode["eager"]))
    with trial.running():
        draws = _record_first_step(trial)
        states = [draw.generator.getstate() for draw in draws]
        trial.first_step()
    changing = []
    for draw, state in zip(draws, states, strict=True):
        if draw.generator.getstate() != state:
            changing.append(draw)
    return EagerDraws(trial, changing) if changing else None


def _record_first_step(trial: Trial) -> list[Draw]:
    """The draws of a step, once for each source location, in the order of time."""
    draws: dict[Hashable, Draw] = {}

    def watch(frame: Any, event: str, called: Any) -> None:
        if event != "c_call" or called.__name__ not in DRAWING:
            return
        generator = getattr(called, "__self__", None)
        if not isinstance(generator, random.Random):
            return
        # A shuffle draws for each item: the location is looked up once.
        stack = tuple((caller.f_code, line) for caller, line in traceback.walk_stack(frame))
        key = (id(generator), stack)
        if key not in draws:
            file, line = user_location(traceback.extract_stack(frame))
            draws[key] = Draw(generator, source_location(file, line))

    previous = sys.getprofile()
    sys.setprofile(watch)
    try:
        trial.first_step()
    finally:
        sys.setprofile(previous)
    return list(draws.values())
