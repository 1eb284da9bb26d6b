"""Match a message of torch to the one remedy that it means.

The strongest evidence decides (see Evidence). Between clues of equal strength there is no order: they exclude one
another by `unless` and `unless_line`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Evidence(IntEnum):
    """The strength of a clue, weakest first. A stronger clue outweighs all weaker ones."""

    GENERAL_MESSAGE = 1  # torch cannot trace a call, or a number changed; the message says no more
    CALL_IN_LINE = 2  # the line calls a function that torch.compile does not take
    MESSAGE = 3  # torch names the operation that it cannot compile, or the guard that failed
    MESSAGE_AND_LINE = 4  # torch names an operation, and the line shows what it is there for
    LINE = 5  # the line shows the cause, whichever of its operations torch names
    VERDICT = 6  # torch names the cause, whatever the line does


@dataclass(frozen=True)
class Clue:
    """Regular expressions that torch's message and the source line contain (`message`, `line`) and do not contain."""

    message: str = ""
    line: str = ""
    unless: str | None = None
    unless_line: str | None = None
    evidence: Evidence = Evidence.MESSAGE

    def matches(self, message: str, line: str) -> bool:
        if not re.search(self.message, message) or not re.search(self.line, line):
            return False
        if self.unless is not None and re.search(self.unless, message):
            return False
        return self.unless_line is None or not re.search(self.unless_line, line)


@dataclass(frozen=True)
class Remedy:
    """A cause by a short name, the reason why it stops torch.compile, the fix, and the messages that mean it."""

    cause: str
    why: str
    fix: str
    clues: tuple[Clue, ...] = ()


def matching(remedies: Iterable[Remedy], message: str, line: str) -> list[Remedy]:
    """The remedies that the strongest evidence speaks for; the data is right if there is at most one."""
    strength: dict[Remedy, Evidence] = {}
    for remedy in remedies:
        for clue in remedy.clues:
            if clue.matches(message, line):
                strength[remedy] = max(clue.evidence, strength.get(remedy, clue.evidence))
    strongest = max(strength.values(), default=None)
    return [remedy for remedy, evidence in strength.items() if evidence == strongest]


def choose_remedy(remedies: Iterable[Remedy], message: str, line: str, otherwise: Remedy) -> Remedy:
    """The remedy of a message; `otherwise` for an unknown message, or one that means several remedies."""
    candidates = matching(remedies, message, line)
    return candidates[0] if len(candidates) == 1 else otherwise
