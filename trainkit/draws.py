"""Random numbers of Python that a compiled step repeats: drawn once, while torch compiles, and the same ever after.

Torch does so, without a graph break or an error, with the draws of a generator that random.Random made
(https://github.com/pytorch/pytorch/issues/145445), and with random.shuffle and random.sample where they are compiled
(https://github.com/pytorch/pytorch/issues/197085). Found is what is so, whatever torch's version.
"""

import random
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch

from trainkit.places import users_place

Place = tuple[str | None, int | None]


def repeated(step: Callable[[], None]) -> list[Place]:
    """Where in the user's code a compiled step draws from a generator that moves in each eager step and stands still in
    a compiled one. `step` makes one and the same step each time, and has been compiled for it.

    Not found: a draw that is repeated beside one from the same generator that is not; one within C code other than
    Python's own generator.
    """
    with torch.compiler.set_stance("force_eager"):
        once, again = _drawn(step), _drawn(step)
    lasting = {id(generator): generator for generator, _ in again}
    drawn = [(generator, place) for generator, place in once if id(generator) in lasting]
    if not drawn:
        return []
    step()  # where torch sets the state of before, it does so here
    before = {number: generator.getstate() for number, generator in lasting.items()}
    step()
    still = {number for number, generator in lasting.items() if generator.getstate() == before[number]}
    return list(dict.fromkeys(place for generator, place in drawn if id(generator) in still))


def _drawn(step: Callable[[], None]) -> list[tuple[random.Random, Place]]:
    """The generators from which a step draws and where, each draw; their order is that of time."""
    drawn: list[tuple[random.Random, Place]] = []

    def watch(frame: Any, event: str, called: Any) -> None:
        generator = getattr(called, "__self__", None) if event == "c_call" else None
        if isinstance(generator, random.Random):
            drawn.append((generator, users_place(traceback.extract_stack(frame))))

    watching = sys.getprofile()
    sys.setprofile(watch)
    try:
        step()
    finally:
        sys.setprofile(watching)
    return drawn
