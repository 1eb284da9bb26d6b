"""The error for settings that cannot be run, and the words that it has for types."""

from collections.abc import Iterable

TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false"}


class ConfigError(ValueError):
    """Settings cannot be run. Each complaint is one line: `setting = value: problem; way out`."""

    def __init__(self, *complaints: str):
        super().__init__("\n".join(complaints))
        self.complaints = complaints


def refuse(complaints: Iterable[str]) -> None:
    """Raise ConfigError with all complaints, if there are any."""
    lines = list(complaints)
    if lines:
        raise ConfigError(*lines)
