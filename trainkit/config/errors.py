"""The error for settings that cannot be run, and the words that it has for types."""

from collections.abc import Iterable

from trainkit.formatting import clean

TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false"}


class ConfigError(ValueError):
    """Settings cannot be run. Each complaint is one line that a terminal can show, whatever was typed or read:
    `setting = value: problem; way out`."""

    def __init__(self, *complaints: str):
        complaints = tuple(clean(complaint) for complaint in complaints)
        super().__init__("\n".join(complaints))
        self.complaints = complaints


def refuse(complaints: Iterable[str]) -> None:
    """Raise ConfigError with all complaints, if there are any."""
    lines = list(complaints)
    if lines:
        raise ConfigError(*lines)
