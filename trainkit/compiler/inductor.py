"""Inductor's workers, generated code, autotuning and cache: typed functions over the table in private_names.

As in dynamo, a name that the installed torch lacks makes its facts None, and the run goes on.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from trainkit.compiler import dynamo
from trainkit.compiler.private_names import find, module_of


def compile_threads() -> int | None:
    """The threads or processes with which inductor compiles kernels."""
    threads: int | None = find("compile_threads")
    return threads


def compile_workers() -> Any:
    """The future of inductor's compile workers being ready; None if none were started."""
    if "torch._inductor.async_compile" not in sys.modules:
        return None
    return find("AsyncCompile._ready_future")


def graph_sources() -> list[str] | None:
    """The Python code of the graphs that inductor has compiled, or found in its cache, in this process."""
    if "torch._inductor.codecache" not in sys.modules:
        return []
    modules = find("PyCodeCache.modules")
    if modules is None:
        return None
    sources = []
    for module in modules:
        path = Path(module.__file__)
        is_graph = hasattr(module, "call")  # others are kernels that were tried
        if is_graph and path.exists():  # it does not in the cold cache of a run that has ended
            sources.append(path.read_text())
    return sources


@contextmanager
def own_artifacts() -> Iterator[None]:
    """Let `torch.compiler.save_cache_artifacts` save the compiles of this context alone."""
    manager = find("CacheArtifactManager")
    if manager is None:
        yield
        return
    with manager.with_fresh_cache():
        yield


@contextmanager
def shared_autotuning() -> Iterator[None]:
    """Let the ranks divide the autotuning of matrix products, in every compile: each waits for all others. Torch's
    process group for that is dropped with the run's own."""
    with (
        dynamo.settings(distributed_max_autotune_gemm=True),
        dynamo.replaced(module_of("_AUTOTUNE_PG"), "_AUTOTUNE_PG", None),
    ):
        yield


def own_autotuning() -> AbstractContextManager[None]:
    """A context in which each rank autotunes by itself, and waits for nobody."""
    return dynamo.settings(distributed_max_autotune_gemm=False)
