"""How a network is compiled, in place, and called."""

import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch import nn
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from trainkit.compiler import dynamic_shapes, facts, graph_breaks
from trainkit.compiler.dynamic_shapes import NAMES, MarkError
from trainkit.compiler.errors import RecompileLimitError, first_line, is_compile_error
from trainkit.compiler.facts import CompileFacts, Seen, Shapes
from trainkit.compiler.regions import Part, parts, unwrapped
from trainkit.compiler.source import TORCH
from trainkit.config.errors import ConfigError
from trainkit.config.schema import CUDAGRAPH_MODES, CompileConfig, DimConfig, PartConfig
from trainkit.results.facts import Region

LIMITS = ("recompile_limit", "accumulated_recompile_limit")
FAIL = "fail_on_recompile"  # torch's stance; the error that it raises names it
LEFT_OUT = "left out by compile.parts"  # as advice.py knows it
WORKERS_START_S = 60  # at most; a run does without them too


@dataclass
class CompiledPart:
    """A part, the graphs that were compiled in its calls (None: this torch does not tell), and how many those were.
    Parts with the same `code` share their graphs."""

    part: Part
    num_graphs: int | None = 0
    num_calls: int = 0
    code: CodeType | None = None


class Compiler:
    """Compiles one objective in place, calls it, and tells what came of it.

    Between `__enter__` and `__exit__` it counts this process's compiles; entering drops all code compiled before, so
    that a second run in one process compiles anew. `on_start` and `on_end` are called with its kind
    (row.COMPILE_KINDS) around every outermost compile and every CUDA-graph recording, `on_eager` after each call of
    the objective in which anything that should be compiled ran uncompiled.
    """

    def __init__(
        self,
        config: CompileConfig,
        on_start: Callable[[str], None] = lambda kind: None,
        on_end: Callable[[str], None] = lambda kind: None,
        on_eager: Callable[[], None] = lambda: None,
    ):
        self.config = config
        self.error: str | None = None
        self.num_cudagraphs = 0
        self._objective: nn.Module | None = None
        self._on_start, self._on_end, self._on_eager = on_start, on_end, on_eager
        self._shapes: Shapes = []  # of the batch that runs
        self._recompiles: dict[str, Shapes] = {}  # by id, what brought them
        self._recompiled: dict[str, nn.Module] = {}  # by id, the part whose call brought them
        self._missing = self._uncompiled = False  # in this call: the variant that was looked for last; any
        self._spent = self._over_budget = False
        self._parts: list[CompiledPart] = []
        self._running: list[CompiledPart] = []  # the innermost last
        self._skips: list[str] = []  # of CUDA graphs, heard while the network runs
        self._undo = ExitStack()

    def __enter__(self) -> "Compiler":
        facts.begin()
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_listening()
        self.restore()

    def _listen(self) -> None:
        self._stop_listening = facts.listen(self._started, self._ended, self._looked_up)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """In place of entering, where several take turns in one process: only within it compiles are this one's."""
        self._listen()
        try:
            yield
        finally:
            self._stop_listening()

    def restore(self) -> None:
        """Put back what `apply` has replaced outside of the network, and let torch compile again. Modules stay
        compiled."""
        self._undo.close()

    def _started(self, kind: str, compile_id: str) -> None:
        self.num_cudagraphs += kind == "cudagraph"
        if kind == "recompile":
            self._recompiles.setdefault(compile_id, self._shapes)
            if self._running and (module := self._running[-1].part.module) is not None:
                self._recompiled.setdefault(compile_id, module)
        self._missing = False
        self._num_graphs = facts.num_graphs()
        self._on_start(kind)

    def _ended(self, kind: str) -> None:
        if self._running and (part := self._running[-1]).num_graphs is not None:
            before, now = self._num_graphs, facts.num_graphs()
            part.num_graphs = None if before is None or now is None else part.num_graphs + now - before
        self._on_end(kind)

    def _looked_up(self, found: bool) -> bool:
        """A variant that is missing is compiled next, or its frame runs uncompiled."""
        self._uncompiled |= self._missing
        self._missing = not found
        return True

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
        _await_workers()
        self.__enter__()

    def apply(self, objective: nn.Module, optimize_ddp: Any) -> None:
        """Compile `objective` (scope step), `objective.net` (net), or what `scope.parts` finds in it, in place: its
        checkpoint keys stay as they are. Called once, before DDP wraps it. A function is replaced in its module until
        `restore`."""
        self._objective = objective
        if self.config.mode.value == "eager":
            return
        torch._dynamo.config.optimize_ddp = optimize_ddp
        if not {self.config.mode.value, *(part.mode.value for part in self.config.parts)}.isdisjoint(CUDAGRAPH_MODES):
            self._skips = self._undo.enter_context(facts.hearing_skips())
        if self.config.max_recompiles is not None:  # torch's own limits must not come before it
            least = self.config.max_recompiles + 2
            limits = {name: getattr(torch._dynamo.config, name) for name in LIMITS}
            raised = {name: max(limit, least) for name, limit in limits.items()}
            self._undo.enter_context(torch._dynamo.config.patch(raised))
        if self.config.scope.value in ("parts", "blocks"):
            self._compile_parts(objective.get_submodule("net"))
            return
        target = objective if self.config.scope.value == "step" else objective.get_submodule("net")
        target.compile(**options(self.config))

    def _compile_parts(self, net: nn.Module) -> None:
        chosen = parts(self.config, net)
        codes: dict[Any, CodeType] = {}
        compiled = [part for part in chosen if part.asked.mode.value != "eager"]
        self._parts = [CompiledPart(part) for part in compiled]
        for counted in self._parts:
            part = counted.part
            if part.module is None:
                self._replace(part.place, part.attribute, self._counted(counted, part.function, part.function))
                continue
            # One code object for all parts that may share their graphs, and for no other: its variants are theirs.
            own, alike = (
                _own_frame(part.module),
                (type(unwrapped(part.module)), _sizes(part.module), str(options(part.asked))),
            )
            own.__code__ = counted.code = codes.setdefault(alike, own.__code__.replace())
            part.module._compiled_call_impl = self._counted(counted, own, part.module._call_impl)
        for part in chosen:  # left out also where it lies in a part that is compiled
            if part.module is None and part not in compiled:
                self._replace(part.place, part.attribute, _left_out(part.function))
            elif part.module is not None and any(part.name.startswith(f"{other.name}.") for other in compiled):
                self._replace(part.module, "forward", _left_out(part.module.forward))

    def _replace(self, place: Any, attribute: str, function: Callable) -> None:
        """Set an attribute until `restore`."""
        before = vars(place).get(attribute)
        self._undo.callback(*((setattr, place, attribute, before) if before else (delattr, place, attribute)))
        setattr(place, attribute, function)

    def _counted(self, counted: CompiledPart, function: Callable, plain: Callable) -> Callable:
        """`function` compiled; the graphs that its calls compile are the part's."""
        compiled = torch.compile(function, **options(counted.part.asked))

        @wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # it is called in another part, which takes it into its graph
                return plain(*args, **kwargs)
            counted.num_calls += 1
            self._running.append(counted)
            try:
                return compiled(*args, **kwargs)
            finally:
                self._running.pop()

        return call

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """The objective's outputs. With on_error=eager, an objective that cannot be compiled runs uncompiled.

        From max_recompiles on nothing more is compiled: variants that are there are used, all others run uncompiled.
        RecompileLimitError in place of the latter, with on_recompile_limit=raise.
        MarkError, a ConfigError, where the objective fixes a dimension of compile.mark_dynamic."""
        self._shapes = [list(tensor.shape) for tensor in inputs]
        self._missing = self._uncompiled = False
        if self.config.mode.value != "eager" or "torch._inductor.cudagraph_trees" in sys.modules:
            # Outputs of the call before are no longer needed. Once anyone in a process says so, everyone must.
            torch.compiler.cudagraph_mark_step_begin()
        if self.config.mode.value != "eager":
            mark_dynamic(self.config.mark_dynamic, inputs)
        try:
            outputs = self._outputs(inputs)
        except RuntimeError as error:
            if self._spent and FAIL in str(error):
                raise self._one_more() from error
            raise
        if self._missing or self._uncompiled or self.error or facts.num_graphs() == 0:
            self._over_budget |= self._spent
            self._on_eager()
        self._budget()
        return outputs

    def _budget(self) -> None:
        most, found = self.config.max_recompiles, len(self._recompiles)
        if most is None or self._spent or found < most:
            return
        self._spent = True
        raises = self.config.on_recompile_limit.value == "raise"
        stance = FAIL if raises else "eager_on_recompile"
        self._undo.enter_context(torch.compiler.set_stance(stance))  # backward must see it too
        if raises and found > most:  # one call may bring several
            raise self._one_more()

    def _one_more(self) -> RecompileLimitError:
        shapes = " and ".join(map(str, self._shapes))
        return RecompileLimitError(f"compile.max_recompiles = {self.config.max_recompiles}: {shapes} needed one more")

    def _outputs(self, inputs: tuple[torch.Tensor, ...]) -> Any:
        assert self._objective is not None
        try:
            return self._compiled_outputs(inputs)
        except Exception as error:
            if self.config.on_error.value != "eager" or self.error or not is_compile_error(error):
                raise
            self.error = first_line(error)
        self._on_start("forward")  # from here on another program runs: no step of before compares with one of after
        self._on_end("forward")
        self.restore()
        for module in self._objective.modules():
            module._compiled_call_impl = None  # what Module.compile() sets; None is uncompiled
        return self._objective(*inputs)

    def _compiled_outputs(self, inputs: tuple[torch.Tensor, ...]) -> Any:
        assert self._objective is not None
        try:
            return self._objective(*inputs)
        except ConstraintViolationError as error:
            if complaints := dynamic_shapes.fixed(self.config, str(error), self._shapes):
                raise MarkError(*complaints) from error
            raise  # of a mark that the network itself makes

    def facts(self) -> CompileFacts:
        """What was compiled since the real compiles began."""
        seen = Seen(
            frozenset(part.part.asked.mode.value for part in self._parts) or frozenset([self.config.mode.value]),
            self.num_cudagraphs,
            self.error,
            self._recompiles,
            self._over_budget,
            [_region(part, self._parts) for part in self._parts] or None,
            frozenset(self._skips),
        )
        return facts.observe(self.config, seen)

    def recompile_sites(self) -> list[dict[str, Any]]:
        """As sites.recompile_sites, each part by the place of its own forward."""
        return graph_breaks.recompile_sites(
            {compile_id: _forward_of(part) for compile_id, part in self._recompiled.items()}
        )

    def skips_function(self) -> bool:
        """Whether a function is left to Python for good while the rest is compiled. Not where all went on uncompiled:
        then `on_eager` tells from which call on."""
        return self.error is None and graph_breaks.skips_function()


def mark_dynamic(asked: list[DimConfig], inputs: tuple[torch.Tensor, ...]) -> None:
    """Make dimensions of a batch dynamic. One whose size is out of its bounds gets variants of its own as ever."""
    for one in asked:
        tensor = inputs[NAMES.index(one.input.value)]
        if one.min <= tensor.shape[one.dim] and (one.max is None or tensor.shape[one.dim] <= one.max):
            bounds = {} if one.max is None else {"min": one.min, "max": one.max}  # torch takes both or none
            torch._dynamo.mark_dynamic(tensor, one.dim, **bounds)


def options(asked: CompileConfig | PartConfig) -> dict[str, Any]:
    """The arguments of torch.compile."""
    modes = {"mode": asked.mode.value} if asked.backend == "inductor" else {}  # no other backend knows modes
    return {"backend": asked.backend, "dynamic": asked.dynamic, "fullgraph": asked.fullgraph} | modes


def _own_frame(module: nn.Module) -> FunctionType:
    """What to compile for a module: torch.compile skips the frames of torch's own classes (nn.Sequential, the wrapper
    of activation checkpointing), but takes them into the graph of a frame of ours."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return module._call_impl(*args, **kwargs)

    return call  # type: ignore[return-value]  # a def is a FunctionType


def _sizes(module: nn.Module) -> tuple[torch.Size, ...]:
    """Of all parameters and buffers: a graph holds for these alone."""
    return tuple(tensor.shape for tensor in (*module.parameters(), *module.buffers()))


def _forward_of(module: nn.Module) -> CodeType | None:
    """What the user wrote of a module; None where that is torch's own, or no code of Python's."""
    code: CodeType | None = getattr(unwrap(type(unwrapped(module)).forward), "__code__", None)
    return None if code is None or code.co_filename.startswith(TORCH) else code


def _left_out(function: Callable) -> Callable:
    return torch.compiler.disable(function, reason=LEFT_OUT)


def _region(counted: CompiledPart, others: list[CompiledPart]) -> Region:
    asked = counted.part.asked
    alike = [other for other in others if other.code is not None and other.code is counted.code]
    return Region(
        name=counted.part.name,
        mode=asked.mode.value,
        dynamic=asked.dynamic,
        fullgraph=asked.fullgraph,
        backend=asked.backend,
        num_graphs=counted.num_graphs,
        reused=counted.num_graphs == 0 and any(other.num_graphs for other in alike),
        num_calls=counted.num_calls,
    )


def _throw_away(weights: torch.Tensor) -> torch.Tensor:
    """A matrix product, a convolution and a sum: on a GPU their libraries are loaded at the first call too."""
    return torch.conv2d((weights @ weights)[None, None], weights[None, None, :3, :3]).sum()


def _await_workers() -> None:
    """Wait until inductor's compile workers have started, if it starts some: it does so at its first compile for a GPU.
    Meanwhile they take processor time, which would be measured with the first steps."""
    inductor = sys.modules.get("torch._inductor.async_compile")
    if inductor is not None and (ready := inductor.AsyncCompile._ready_future) is not None:
        wait([ready], WORKERS_START_S)


def check(
    config: CompileConfig,
    net: nn.Module,
    batch: tuple[torch.Tensor, ...],
    device_type: str,
    coming: Mapping[int, Collection[int]],
) -> None:
    """Raise ConfigError where a backend cannot work on this machine (unknown, or inductor without a C++ compiler), and
    where the scope does not fit the network, or a dimension to mark the batch, or the sizes that are coming in it."""
    dynamic_shapes.check(config.mark_dynamic, batch)
    dynamic_shapes.check_bounds(config.mark_dynamic, coming)
    bare = type(net).__module__.startswith("torch.nn.")
    if config.scope.value == "net" and config.mode.value != "eager" and bare:
        raise ConfigError(
            f"compile.scope = net: torch.compile skips a bare {type(net).__name__} of torch.nn silently; "
            "use compile.scope=step, or wrap the network in a class of your own"
        )
    asked: dict[str, CompileConfig | PartConfig] = {"compile.backend": config}
    if config.scope.value in ("parts", "blocks"):
        own = (part.asked for part in parts(config, net) if part.asked.backend != config.backend)
        asked |= {f"compile.parts, {part.match}: backend": part for part in own}
    for setting, one in asked.items():
        compiles = one.mode.value != "eager" and config.on_error.value != "eager"
        check_backend(setting, one.backend, device_type, compiles)


def check_backend(setting: str, backend: str, device_type: str, compiles: bool) -> None:
    """Raise ConfigError for a backend that is unknown, or that compiles and cannot on this machine."""
    # The list takes half a second: it loads them all.
    if backend != "inductor" and backend not in torch._dynamo.list_backends(exclude_tags=()):
        known = ", ".join(["eager", "aot_eager", *torch._dynamo.list_backends()])  # the list leaves out what debugs
        raise ConfigError(f"{setting} = {backend}: expected one of {known}")
    if compiles and backend == "inductor" and device_type == "cpu":
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.cpu_vec_isa import pick_vec_isa
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            get_cpp_compiler()
        except InvalidCxxCompiler:
            raise ConfigError(
                f"{setting} = inductor: on a CPU it needs a C++ compiler and none was found; "
                "install g++ or clang++, or use compile.mode=eager"
            ) from None
        # Which vector instructions there are torch tries out (16 s), once for each cache directory. That is the
        # machine's, and not to be done again in every cold cache.
        pick_vec_isa()


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
