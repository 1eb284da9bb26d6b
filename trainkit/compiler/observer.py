"""Listens to torch while a network is called: compiles, CUDA-graph recordings, lookups of compiled variants."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from trainkit.compiler import dynamo
from trainkit.compiler.regions import CompiledRegion
from trainkit.inputs import tensors_of

Shapes = list[list[int]]  # of a batch's tensors


def compile_kind(trigger: str, compile_id: str) -> str:
    """The kind of a compile, of results' COMPILE_KINDS. Every variant of a frame after the first is a recompile."""
    if trigger == "CUDAGRAPH_RECORDING":
        return "cudagraph"
    variant = dynamo.variant_id(compile_id).rpartition("/")[2]
    if variant.isdigit() and int(variant) > 0:
        return "recompile"
    if trigger == "LAZY_BACKWARD":
        return "backward"
    return "forward"


class Observer:
    """Counts torch's compiles between `start` and `stop`, and notes which calls ran anything uncompiled.

    `on_start` and `on_end` are called with its kind around every outermost compile and every CUDA-graph recording.
    `regions` are the compiled regions whose call runs now, innermost last.
    """

    def __init__(self, on_start: Callable[[str], None], on_end: Callable[[str], None]):
        self.num_cudagraphs = 0
        self.recompile_shapes: dict[str, Shapes] = {}  # of the batch that caused a recompile, by the recompile's id
        self.recompiled_modules: dict[str, nn.Module] = {}  # the region that was called, by the recompile's id
        self.batch_shapes: Shapes = []  # of the batch that runs
        self.regions: list[CompiledRegion] = []
        self.compiled_in_call = False  # anything, since `begin_call`
        self._has_graphs = False
        self._on_start, self._on_end = on_start, on_end
        self._stops: list[Callable[[], None]] = []
        self._num_graphs: int | None = 0  # when the compile that runs started
        self._lookup_failed = False  # the last lookup of this call found no variant
        self._ran_uncompiled = False  # a frame of this call did

    @property
    def num_recompiles(self) -> int:
        return len(self.recompile_shapes)

    @property
    def has_graphs(self) -> bool:
        """Whether torch counts a graph, or cannot count. Once it has one it is not asked again."""
        if not self._has_graphs:
            self._has_graphs = dynamo.num_graphs() != 0
        return self._has_graphs

    def start(self) -> None:
        self._has_graphs = False
        self._stops = [
            dynamo.on_compiles(self._compile_started, self._compile_ended),
            dynamo.on_lookups(self._looked_up),
        ]

    def stop(self) -> None:
        for stop in self._stops:
            stop()
        self._stops = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()

    def begin_call(self, batch: tuple[Any, ...]) -> None:
        self.batch_shapes = [list(tensor.shape) for tensor in tensors_of(batch)]
        self._lookup_failed = self._ran_uncompiled = self.compiled_in_call = False

    def call_ran_uncompiled(self) -> bool:
        """Whether anything since `begin_call` ran uncompiled for want of a variant."""
        return self._ran_uncompiled or self._lookup_failed

    def _compile_started(self, trigger: str, compile_id: str) -> None:
        kind, variant_id = compile_kind(trigger, compile_id), dynamo.variant_id(compile_id)
        if kind == "cudagraph":
            self.num_cudagraphs += 1
        if kind == "recompile":
            self.recompile_shapes.setdefault(variant_id, self.batch_shapes)
            if self.regions and self.regions[-1].target.module is not None:
                self.recompiled_modules.setdefault(variant_id, self.regions[-1].target.module)
        self._lookup_failed = False
        self.compiled_in_call = True
        self._num_graphs = dynamo.num_graphs()
        self._on_start(kind)

    def _compile_ended(self, trigger: str, compile_id: str) -> None:
        if self.regions:
            self._count_graphs(self.regions[-1])
        self._on_end(compile_kind(trigger, compile_id))

    def _count_graphs(self, region: CompiledRegion) -> None:
        num_graphs = dynamo.num_graphs()
        if region.num_graphs is None or num_graphs is None or self._num_graphs is None:
            region.num_graphs = None
        else:
            region.num_graphs += num_graphs - self._num_graphs

    def _looked_up(self, found_variant: bool) -> bool:
        """After a failed lookup the frame is compiled, or runs uncompiled: then the next lookup comes first."""
        self._ran_uncompiled |= self._lookup_failed
        self._lookup_failed = not found_variant
        return True
