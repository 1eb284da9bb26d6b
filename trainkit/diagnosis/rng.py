"""Random numbers of Python that a compiled step repeats: drawn once, while torch compiles, and the same ever after.

Torch does so, without a graph break or an error, with the draws of a generator that random.Random made
(https://github.com/pytorch/pytorch/issues/145445), and with random.shuffle and random.sample where they are compiled
(https://github.com/pytorch/pytorch/issues/197085). Found is what is so, whatever torch's version.
"""

import random
import sys
import traceback
from dataclasses import dataclass, replace
from typing import Any

from trainkit.compiler.source import user_location
from trainkit.config.schema import Mode
from trainkit.diagnosis.trial import Subject, Trial

Place = tuple[str | None, int | None]


@dataclass(frozen=True)
class Draws:
    """From which generators an eager step draws that such a step moves on, and where in the user's code."""

    trial: Trial
    drawn: list[tuple[random.Random, Place]]

    def repeated(self, compiled: Trial) -> list[Place]:
        """The places at which a trial that is compiled and has made its steps draws from a generator that stands still.

        Not found: a draw that is repeated beside one from the same generator that is not; one in C code other than
        Python's own generator. Found wrongly: one that only eager steps are to make (`if not
        torch.compiler.is_compiling()`).
        """
        twins = {id(generator): compiled.twin(self.trial, generator) for generator, _ in self.drawn}
        compiled.first_step()  # where torch sets the state of before, it does so here
        before = {number: twin.getstate() for number, twin in twins.items()}
        compiled.first_step()
        still = {number for number, twin in twins.items() if twin.getstate() == before[number]}
        return list(dict.fromkeys(place for generator, place in self.drawn if id(generator) in still))


def draws_of(of: Subject, phase: str) -> Draws | None:
    """By two steps of a copy that is not compiled; None, and no copy is kept, where no such draw is."""
    trial = Trial(of, phase, replace(of.config.compile, mode=Mode["eager"]))
    with trial.running():
        drawn = _drawn(trial)
        before = {id(generator): generator.getstate() for generator, _ in drawn}
        trial.first_step()
    drawn = [(generator, place) for generator, place in drawn if generator.getstate() != before[id(generator)]]
    return Draws(trial, drawn) if drawn else None


def _drawn(trial: Trial) -> list[tuple[random.Random, Place]]:
    """The generators from which a step draws and where, each place once; their order is that of time."""
    drawn: dict[Any, tuple[random.Random, Place]] = {}

    def watch(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in ("random", "getrandbits"):  # all that Python's generator draws with
            generator = getattr(called, "__self__", None)
            if isinstance(generator, random.Random):
                # To shuffle draws as often as there are items: a place is looked up once.
                key = (id(generator), *((one.f_code, line) for one, line in traceback.walk_stack(frame)))
                if key not in drawn:
                    drawn[key] = generator, user_location(traceback.extract_stack(frame))

    watching = sys.getprofile()
    sys.setprofile(watch)
    try:
        trial.first_step()
    finally:
        sys.setprofile(watching)
    return list(drawn.values())
