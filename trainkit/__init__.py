"""A run is a function from one typed config to one typed row; everything else composes configs or reads rows.

The public API. `import trainkit` imports nothing else; torch comes with the functions that need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainkit.training.network import load

__all__ = ["load"]

MODULES = {
    "load": "trainkit.training.network",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'trainkit' has no attribute '{name}'")
    return getattr(import_module(MODULES[name]), name)
