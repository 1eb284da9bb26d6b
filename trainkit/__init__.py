"""A run is a function from one typed config to one typed row; everything else composes configs or reads rows.

The public API. `import trainkit` imports nothing else; torch comes with the functions that need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainkit.analysis.comparison import Comparison, compare
    from trainkit.api import compose, diagnose, run
    from trainkit.config.errors import ConfigError
    from trainkit.config.schema import RunConfig
    from trainkit.results.row import Row
    from trainkit.results.runs import read_rows
    from trainkit.training.network import load

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "ConfigError",
    "Row",
    "RunConfig",
    "compare",
    "compose",
    "diagnose",
    "load",
    "read_rows",
    "run",
]

MODULES = {
    "Comparison": "trainkit.analysis.comparison",
    "ConfigError": "trainkit.config.errors",
    "Row": "trainkit.results.row",
    "RunConfig": "trainkit.config.schema",
    "compare": "trainkit.analysis.comparison",
    "compose": "trainkit.api",
    "diagnose": "trainkit.api",
    "load": "trainkit.training.network",
    "read_rows": "trainkit.results.runs",
    "run": "trainkit.api",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'trainkit' has no attribute '{name}'")
    return getattr(import_module(MODULES[name]), name)
