"""What torch keeps of its compiles: counters and records of torch._dynamo, most of whose names are private.

One that is gone in another torch is None ("unknown") to who reads it here, and the run goes on.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch._dynamo

T = TypeVar("T")


def known(read: Callable[[], T]) -> T | None:
    """What `read` gives, or None where this torch has not the name that it reads."""
    try:
        return read()
    except (AttributeError, ImportError):
        return None


def compiles() -> list[Any] | None:
    """The record of each compile since facts.begin_counts, of forward and of backward."""
    return known(lambda: list(torch._dynamo.utils.get_compilation_metrics()))


def told(metric: Any, name: str) -> Any:
    """A field of such a record; None where this torch has not that field."""
    return getattr(metric, name, None)


def counted(*names: tuple[str, str]) -> int | None:
    """The sum of these counters, each named by its group and its own name."""
    counters = known(lambda: torch._dynamo.utils.counters)
    return None if counters is None else sum(counters[group][name] for group, name in names)


def variant_of(compile_id: str) -> str:
    """The frame and its variant: "0/1_2" is the second restart of the compile 0/1."""
    return compile_id.partition("_")[0]
