"""How a network is compiled: with facts.py the only file that knows torch.compile and torch._dynamo."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

from trainkit import facts
from trainkit.config import CompileConfig, ConfigError
from trainkit.facts import CompileFacts


class Compiler:
    """Compiles one objective in place, calls it, and tells what came of it.

    Between `__enter__` and `__exit__` it counts this process's compiles; entering drops all code compiled before, so
    that a second run in one process compiles anew. `on_start` and `on_end` are called with its kind (facts.KINDS)
    around every outermost compile and every CUDA-graph recording.
    """

    def __init__(self, config: CompileConfig, on_start: Callable[[str], None], on_end: Callable[[str], None]):
        self.config = config
        self.error: str | None = None
        self.num_cudagraphs = 0
        self._objective: nn.Module | None = None
        self._on_start, self._on_end = on_start, on_end

    def __enter__(self) -> "Compiler":
        facts.begin()
        self._stop_listening = facts.listen(self._started, self._on_end)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_listening()

    def _started(self, kind: str) -> None:
        self.num_cudagraphs += kind == "cudagraph"
        self._on_start(kind)

    def start_up(self, device: torch.device) -> None:
        """Compile a function that is thrown away, uncounted: what a process pays once for imports, tools and workers
        is not the network's. A backend that cannot compile says so of the network itself."""
        if self.config.mode.value == "eager":
            return
        self._stop_listening()
        weights = torch.ones(8, 8, device=device, requires_grad=True)
        try:
            torch.compile(_throw_away, backend=self.config.backend)(weights).backward()
        except Exception as error:
            if not is_compile_error(error):
                raise
        self.__enter__()

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
        self._on_start("forward")  # from here on another program runs: no step of before compares with one of after
        self._on_end("forward")
        for module in (self._objective, self._objective.get_submodule("net")):
            module._compiled_call_impl = None  # what Module.compile() sets; None is uncompiled
        return self._objective(*inputs)

    def facts(self) -> CompileFacts:
        """What was compiled since the real compiles began."""
        return facts.observe(self.config, self.num_cudagraphs, self.error)


def _throw_away(weights: torch.Tensor) -> torch.Tensor:
    """A matrix product, a convolution and a sum: on a GPU their libraries are loaded at the first call too."""
    return torch.conv2d((weights @ weights)[None, None], weights[None, None, :3, :3]).sum()


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
def cache(kind: str, attention: str = "auto") -> Iterator[None]:
    """`cold`: compile into a fresh directory of this process, deleted at the end. `warm`: the user's own cache; of it
    only code for the same `trainer.attention` is taken."""
    with ExitStack() as stack:
        if attention != "auto":
            # torch's keys do not say which kernels attention may run, and a run would get those of another setting.
            # No issue of torch's is known; a test tells when its keys do.
            tag = f"{torch.compiler.config.cache_key_tag} trainer.attention={attention}"
            stack.enter_context(torch.compiler.config.patch(cache_key_tag=tag))  # type: ignore[attr-defined]
        if kind == "cold":
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="trainkit-cold-", ignore_cleanup_errors=True)
            )
            fresh = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": str(Path(folder, "triton"))}
            stack.enter_context(mock.patch.dict(os.environ, fresh))
        yield
