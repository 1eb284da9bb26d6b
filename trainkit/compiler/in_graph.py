"""Functions that Dynamo does not trace."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainkit.compiler.private_names import find, module_of

CACHEABLE = "unsafe_marked_cacheable_functions"


def allow_in_graph(function: Callable[..., Any]) -> None:
    """Have Dynamo put each call of a function into the graph as it is, which is faster, for AOTAutograd to trace.

    torch's caches keep graphs with such a call only of functions that are named to them. They know the arguments of the
    call. What else its operations depend on may be nothing but the sources in the function's own folder.
    """
    torch.compiler.allow_in_graph(function)
    cacheable = find(CACHEABLE)
    if cacheable is not None:
        sources = hashlib.sha256()
        for path in sorted(Path(function.__code__.co_filename).parent.glob("*.py")):
            sources.update(path.read_bytes())
        key = {f"{function.__module__}.{function.__name__}": sources.hexdigest()}
        setattr(module_of(CACHEABLE), CACHEABLE, cacheable | key)
