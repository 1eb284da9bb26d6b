"""The step of the optimizer before which all ranks stop that were told to."""

import math
import time
from collections.abc import Sequence

WAIT_S = 0.05


class Stop:
    """Lets ranks that are told to stop at different moments stop before the same step, without a collective.

    Each rank holds its main thread before the next step and tells how many it has begun. The rank that has begun most
    decides: the others are in a step that needs them, and go on until there.
    """

    def __init__(self) -> None:
        self.num_steps = 0  # that this rank has begun
        self.is_agreed = False
        self._limit = math.inf

    @property
    def is_due(self) -> bool:
        """Whether the rank has begun its last step."""
        return self.is_agreed and self.num_steps >= self._limit

    def begin_step(self) -> bool:
        """Count a step. Returns False, perhaps after a wait for the other ranks, if the run stops before it."""
        while self.num_steps >= self._limit:
            if self.is_agreed:
                return False
            time.sleep(WAIT_S)
        self.num_steps += 1
        return True

    def hold(self) -> int:
        """Hold the main thread before its next step. Returns how many it has begun. Called by any thread."""
        if self._limit == math.inf:
            self._limit = self.num_steps
            while self.num_steps > self._limit:  # the main thread began one meanwhile
                self._limit = self.num_steps
        return int(self._limit)

    def agree(self, begun: Sequence[int]) -> None:
        """Stop before the next step of the rank that has begun most, `begun` being those of all ranks."""
        self._limit = max(begun)
        self.is_agreed = True
