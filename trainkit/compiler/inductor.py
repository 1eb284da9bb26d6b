"""Inductor's workers, generated code, autotuning and cache: typed functions over the table in private_names.

As in dynamo, a name that the installed torch lacks makes its facts None, and the run goes on.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from trainkit.compiler import dynamo
from trainkit.compiler.private_names import find, module_of
from trainkit.results.facts import TunedKernel

KERNEL_NUMBER = re.compile(r"_\d+$")  # that torch gives each candidate: triton_mm_12


def compile_threads() -> int | None:
    """The threads or processes with which inductor compiles kernels."""
    threads: int | None = find("compile_threads")
    return threads


def start_workers() -> None:
    """Have inductor start its compile workers now. It would at its first compile, which then waits while they import
    torch."""
    start = find("maybe_warm_pool")
    if start is not None:
        start()


def workers_start_cuda() -> bool:
    """Whether torch starts CUDA in this process before it starts inductor's workers, as it does unless they are in a
    process of torch's own, TORCHINDUCTOR_WORKER_START=subprocess."""
    return find("worker_start_method") in ("fork", "spawn")


def use_ptxas_of_workers() -> None:
    """Have this process assemble kernels with the ptxas of inductor's compile workers, from before its first compile
    until it ends: Triton asks for the version once.

    The wheels of torch 2.11 and 2.12 for CUDA 13 have a ptxas of their own
    (https://github.com/pytorch/pytorch/pull/163988). Torch has the workers take it, and this process only after Triton
    has asked. Triton's cache tells the versions apart, so this process would not find what the workers have compiled
    for autotuning, and compile each kernel that is tried again, one after another. Before Blackwell, that is: there
    Triton takes another one. 2.13 has none (https://github.com/pytorch/pytorch/pull/174716); when it is the oldest
    that is supported, this can go.
    """
    set_path = find("_set_triton_ptxas_path")
    if set_path is not None:
        set_path()


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
def on_autotuned(on_tuned: Callable[[TunedKernel], None]) -> Iterator[None]:
    """Call back with the fastest kernel of an operation whenever autotuning has timed its kernels."""
    selector_of = find("get_algorithm_selector_cache")
    if selector_of is None:
        yield
        return

    def timed(times_ms: dict[Any, float], operation: str, *_: Any) -> None:
        if times_ms:
            fastest = min(times_ms, key=lambda kernel: times_ms[kernel])
            on_tuned(TunedKernel(operation, KERNEL_NUMBER.sub("", fastest.name), 1))

    selector = selector_of()
    selector.add_feedback_saver(timed)
    try:
        yield
    finally:
        if timed in selector.feedback_saver_fns:  # torch's clear_feedback_savers() drops it
            selector.feedback_saver_fns.remove(timed)


@contextmanager
def on_autotuning(on_start: Callable[[int], None]) -> Iterator[None]:
    """Call back with the number of kernels for an operation whenever autotuning is about to choose among them."""
    selector_of = find("get_algorithm_selector_cache")
    if selector_of is None:
        yield
        return

    def started(kernels: list[Any]) -> list[Any]:
        if len(kernels) > 1:
            on_start(len(kernels))
        return kernels

    selector = selector_of()
    selector.add_preprocessing_fn(started)
    try:
        yield
    finally:
        if started in selector.preprocessing_fns:  # torch's clear_preprocessing_fns() drops it
            selector.preprocessing_fns.remove(started)


def reports_autotuning() -> bool:
    """Whether this torch reports the kernels that autotuning timed."""
    return find("get_algorithm_selector_cache") is not None


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
