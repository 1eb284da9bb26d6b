"""Terminal output captured as text."""

from collections.abc import Callable
from io import StringIO
from typing import Any

from rich.console import Console


def shown(print_it: Callable[..., None], *args: Any, width: int = 120) -> str:
    file = StringIO()
    print_it(*args, console=Console(file=file, width=width))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())  # rich fills up to the width


def line_of(text: str, start: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return line
