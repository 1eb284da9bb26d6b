"""How a network is compiled, and what the compiler did: the only file that knows torch.compile and torch._dynamo.

The facts come from torch's own counters and callbacks, never from its log. Some of those names are private; where one
is gone in a newer torch, the fact is None ("unknown"), and the run goes on.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.callback import callback_handler
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from torch._dynamo.utils import counters, get_compilation_metrics, graph_break_reasons

from trainkit.config import CUDAGRAPH_MODES, CompileConfig, ConfigError

MAX_METRICS = 100_000  # torch keeps the last 64 compiles by default; a run with many shapes has more
WITHOUT_CUDAGRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}


@dataclass(frozen=True)
class CompileFacts:
    """What torch.compile did in one process; the fields are those of results.Row. None: this torch does not tell."""

    effective_mode: str
    effective_mode_reason: str | None
    num_graphs: int
    num_graph_breaks: int | None
    graph_breaks: list[dict[str, Any]] | None
    num_recompiles: int | None
    recompiles: list[str] | None
    num_cudagraph_skips: int | None
    num_cudagraphs: int | None
    cache_hits: int | None
    cache_misses: int | None


class Compiler:
    """Compiles one objective in place, calls it, and tells what came of it.

    Between `__enter__` and `__exit__` it counts this process's compiles; entering drops all code compiled before, so
    that a second run in one process compiles anew. `on_start` and `on_end` are called around every outermost compile
    and every CUDA-graph recording.
    """

    def __init__(self, config: CompileConfig, on_start: Callable[[], None], on_end: Callable[[], None]):
        self.config = config
        self.error: str | None = None
        self.num_cudagraphs = 0
        self._objective: nn.Module | None = None
        self._on_start, self._on_end = on_start, on_end

    def __enter__(self) -> "Compiler":
        torch._dynamo.reset()  # also drops callbacks, so it comes first
        counters.clear()
        torch._dynamo.utils.clear_compilation_metrics()
        torch._dynamo.utils.set_compilation_metrics_limit(MAX_METRICS)
        callback_handler.register_start_callback(self._started)
        callback_handler.register_end_callback(self._ended)
        return self

    def __exit__(self, *_: object) -> None:
        # A dynamo.reset() of the user's has dropped them already.
        if self._started in callback_handler.start_callbacks:
            callback_handler.remove_start_callback(self._started)
            callback_handler.remove_end_callback(self._ended)

    def _started(self, args: Any) -> None:
        self.num_cudagraphs += args.callback_trigger.name == "CUDAGRAPH_RECORDING"
        self._on_start()

    def _ended(self, args: Any) -> None:
        self._on_end()

    def apply(self, objective: nn.Module, optimize_ddp: Any) -> None:
        """Compile `objective` (scope step) or `objective.net` (scope net) in place: its checkpoint keys stay as they
        are. Called once, before DDP wraps it.

        Raises ConfigError where torch.compile would silently compile nothing.
        """
        self._objective = objective
        if self.config.mode.value == "eager":
            return
        torch._dynamo.config.optimize_ddp = optimize_ddp
        target = objective if self.config.scope.value == "step" else objective.get_submodule("net")
        if type(target).__module__.startswith("torch.nn."):
            raise ConfigError(
                f"compile.scope = net: torch.compile skips a bare {type(target).__name__} of torch.nn silently; "
                "use compile.scope=step, or wrap the network in a class of your own"
            )
        options: dict[str, Any] = {"dynamic": self.config.dynamic, "fullgraph": self.config.fullgraph}
        if self.config.backend == "inductor":  # no other backend knows modes
            options["mode"] = self.config.mode.value
        target.compile(backend=self.config.backend, **options)

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """The objective's outputs. With on_error=eager, an objective that cannot be compiled runs uncompiled."""
        assert self._objective is not None
        try:
            return self._objective(*inputs)
        except Exception as error:
            if self.config.on_error.value != "eager" or self.error or not is_compile_error(error):
                raise
            self.error = first_line(error)
        self._on_start()  # what runs from here on is another program: no step of before compares with one of after
        self._on_end()
        for module in (self._objective, self._objective.get_submodule("net")):
            module._compiled_call_impl = None  # what Module.compile() sets; None is uncompiled
        return self._objective(*inputs)

    def facts(self) -> CompileFacts:
        """What was compiled since `__enter__`, and the mode that took effect: `effective_mode` differs from the asked
        mode where the network ran otherwise, in part (`mixed`) or as a whole, and the reason says why."""
        metrics = get_compilation_metrics()
        breaks = [_site(reason) for reason in graph_break_reasons if reason.graph_break]
        distinct = list({(site["file"], site["line"], site["reason"]): site for site in breaks}.values())
        recompiles = [str(m.recompile_reason) for m in metrics if getattr(m, "recompile_reason", None)]
        inductor, autograd = counters["inductor"], counters["aot_autograd"]
        mode, reason = self._effective(metrics)
        return CompileFacts(
            effective_mode=mode,
            effective_mode_reason=reason,
            num_graphs=counters["stats"]["unique_graphs"],
            num_graph_breaks=len(distinct),
            graph_breaks=distinct,
            num_recompiles=len(recompiles),
            recompiles=recompiles,
            num_cudagraph_skips=inductor["cudagraph_skips"],
            num_cudagraphs=self.num_cudagraphs,
            cache_hits=inductor["fxgraph_cache_hit"] + autograd["autograd_cache_hit"],
            cache_misses=inductor["fxgraph_cache_miss"] + autograd["autograd_cache_miss"],
        )

    def _effective(self, metrics: list[Any]) -> tuple[str, str | None]:
        """The mode that took effect, and why it is another than the one asked for (None where it is the same)."""
        asked = self.config.mode.value
        if asked == "eager":
            return asked, None
        if self.error:
            mode = "eager" if counters["stats"]["unique_graphs"] == 0 else "mixed"
            return mode, f"could not be compiled, went on uncompiled (compile.on_error=eager): {self.error}"
        if counters["stats"]["unique_graphs"] == 0:
            return "eager", "nothing was compiled"
        if any("recompile limit" in (metric.fail_reason or "") for metric in metrics):
            limit = torch._dynamo.config.recompile_limit
            return "mixed", f"recompile limit ({limit}) reached: the variants after it ran uncompiled"
        if asked not in CUDAGRAPH_MODES or self.config.backend != "inductor":
            return asked, None
        skips = counters["inductor"]["cudagraph_skips"]
        if skips == 0 and self.num_cudagraphs > 0:
            return asked, None
        reasons = {m.cudagraph_skip_reason for m in metrics if getattr(m, "cudagraph_skip_reason", None)}
        why = ", ".join(sorted(reasons)) or "CUDA graphs need a CUDA device" * (not torch.cuda.is_available())
        if self.num_cudagraphs > 0:
            return "mixed", f"CUDA graphs skipped {skips} times: {why or 'no reason given by torch'}"
        return WITHOUT_CUDAGRAPHS[asked], f"CUDA graphs did not take effect: {why or 'none was recorded'}"


def combined(ranks: list[CompileFacts]) -> CompileFacts:
    """The facts of all ranks as one: rank 0's, and where the ranks' effective modes differ, that."""
    if len({facts.effective_mode for facts in ranks}) == 1:
        return ranks[0]
    modes = ", ".join(f"rank {rank} {facts.effective_mode}" for rank, facts in enumerate(ranks))
    return replace(ranks[0], effective_mode="mixed", effective_mode_reason=f"the ranks differ: {modes}")


def _site(reason: Any) -> dict[str, Any]:
    """Where in the user's code a graph broke, and the first line of why."""
    frame = reason.user_stack[-1] if reason.user_stack else None
    return {
        "file": frame.filename if frame else None,
        "line": frame.lineno if frame else None,
        "reason": str(reason.reason).splitlines()[0],
    }


def first_line(error: BaseException) -> str:
    """The error's type and the first line of what it says; the first two where the first only announces the second."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_compile_error(error: BaseException) -> bool:
    """Whether an exception came from compiling (not from running what was compiled, and not from memory)."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            return False
        cause = getattr(cause, "inner_exception", None) or cause.__cause__
    return isinstance(error, TorchDynamoException | FailOnRecompileLimitHit)


def check_backend(config: CompileConfig, device_type: str) -> None:
    """Raise ConfigError where the backend cannot work on this machine: unknown, or inductor without a C++ compiler."""
    if config.backend not in torch._dynamo.list_backends(exclude_tags=()):
        known = ", ".join(["eager", "aot_eager", *torch._dynamo.list_backends()])  # the list leaves out what debugs
        raise ConfigError(f"compile.backend = {config.backend}: expected one of {known}")
    if config.mode.value == "eager" or config.on_error.value == "eager":
        return
    if config.backend == "inductor" and device_type == "cpu":
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            get_cpp_compiler()
        except InvalidCxxCompiler:
            raise ConfigError(
                f"compile.mode = {config.mode.value}: on a CPU it needs a C++ compiler and none was found; "
                "install g++ or clang++, or use compile.mode=eager"
            ) from None


@contextmanager
def cache(kind: str) -> Iterator[None]:
    """`cold`: compile into a fresh directory of this process, deleted at the end. `warm`: the user's own cache."""
    with ExitStack() as stack:
        if kind == "cold":
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="trainkit-cold-", ignore_cleanup_errors=True)
            )
            fresh = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": str(Path(folder, "triton"))}
            stack.enter_context(mock.patch.dict(os.environ, fresh))
        yield
