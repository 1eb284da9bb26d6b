"""Compiler, the one object of this package that others drive."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from trainkit.compiler import dynamic_shapes, dynamo, facts, graph_breaks, inductor, recompiles, startup
from trainkit.compiler.apply import compile_in_place, equivalent_mode, uncompile
from trainkit.compiler.budget import RecompileBudget
from trainkit.compiler.errors import first_line, is_compile_error
from trainkit.compiler.facts import Observations
from trainkit.compiler.observer import Observer
from trainkit.compiler.recompiles import Recompile
from trainkit.compiler.regions import CompiledRegion
from trainkit.config.schema import AUTOTUNE_MODES, CUDAGRAPH_MODES, CompileConfig, DdpConfig
from trainkit.results.effective import CompileFacts
from trainkit.results.facts import TunedKernel

MAX_COMPILES = 100_000  # whose metrics torch keeps; by default the last 64, and a run with many shapes has more
# Inductor starts a collective as soon as its input is there, and waits for it before it starts the next one. Its passes
# that wait later choose the order of collectives by costs, and two ranks must not choose two orders.
OVERLAP = {
    "reorder_for_compute_comm_overlap": True,
    "reorder_for_compute_comm_overlap_passes": ["sink_waits", "raise_comms"],
}


class Compiler:
    """Compiles one objective in place, calls it, and reports the facts of its compiles.

    Between `__enter__` and `__exit__` it counts this process's compiles. Entering drops all compiled code, so that a
    second run in one process compiles again. `on_start` and `on_end` are called with its kind (COMPILE_KINDS) around
    every outermost compile and every CUDA-graph recording, `on_eager` after each call of the objective in which
    anything that should be compiled ran uncompiled.
    """

    def __init__(
        self,
        config: CompileConfig,
        on_start: Callable[[str], None] = lambda kind: None,
        on_end: Callable[[str], None] = lambda kind: None,
        on_eager: Callable[[], None] = lambda: None,
    ):
        self.config = config
        self.error: str | None = None  # why the objective runs uncompiled, with on_error=eager
        self._compiles = config.mode != "eager"
        self._on_start, self._on_end, self._on_eager = on_start, on_end, on_eager
        self._observer = Observer(on_start, on_end)
        self._budget: RecompileBudget | None = None
        if config.max_recompiles is not None:
            self._budget = RecompileBudget(config.max_recompiles, raises=config.on_recompile_limit == "raise")
        self._objective: nn.Module | None = None
        self._regions: list[CompiledRegion] = []
        self._skips: list[str] = []  # of CUDA graphs, in calls
        self._tuned: list[TunedKernel] = []
        self._undo = ExitStack()  # what compiled code needs
        self._undo_settings = ExitStack()

    def __enter__(self) -> "Compiler":
        dynamo.reset()
        self._observer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._observer.stop()
        self.restore()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Count this process's compiles as this compiler's. In place of entering, for several compilers in turn."""
        with self._observer.listening():
            yield

    def restore(self) -> None:
        """Undo the changes of `apply` outside of the network. Modules stay compiled."""
        self._undo.close()
        self._undo_settings.close()

    def start_up(self, device: torch.device) -> None:
        """Pay, uncounted, the costs that a process has once, at its first compile."""
        if not self._compiles:
            return
        self._observer.stop()
        startup.compile_throw_away(device, self.config.backend)
        startup.wait_for_workers()
        self.__enter__()

    def apply(self, objective: nn.Module, ddp: DdpConfig) -> None:
        """Compile an objective in place. Called once, before DDP wraps it or its blocks are sharded."""
        self._objective = objective
        self._undo_settings.enter_context(dynamo.metrics_limit(MAX_COMPILES))
        if not self._compiles:
            return
        self._undo_settings.enter_context(dynamo.settings(optimize_ddp=ddp.optimize_ddp))
        if ddp.strategy == "compiled":
            self._undo_settings.enter_context(dynamo.settings(**OVERLAP))
        modes = {equivalent_mode(self.config)}
        for part in self.config.parts:
            modes.add(equivalent_mode(part))
        if not modes.isdisjoint(CUDAGRAPH_MODES):
            self._undo.enter_context(dynamo.on_cudagraph_skips(self._skips.append))
        if not modes.isdisjoint(AUTOTUNE_MODES):
            self._undo.enter_context(inductor.on_autotuned(self._tuned.append))
        if self._budget is not None:
            self._budget.raise_torch_limits(self._undo)
        self._regions = compile_in_place(
            self.config, objective, self._observer, self._undo, leave_hooks=ddp.strategy == "fsdp2"
        )

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """The objective's outputs. With on_error=eager, an objective that cannot be compiled runs uncompiled.

        Raises RecompileLimitError if a call needs more than max_recompiles and on_recompile_limit=raise, MarkError, a
        ConfigError, if the objective fixes a dimension of compile.mark_dynamic."""
        assert self._objective is not None
        self._observer.begin_call(inputs)
        if self._compiles or dynamo.CUDAGRAPH_TREES in sys.modules:
            # Outputs of the last call are no longer needed. Once anyone in a process says so, everyone must.
            torch.compiler.cudagraph_mark_step_begin()
        if self._compiles:
            dynamic_shapes.mark_dims(self.config.mark_dynamic, inputs)
        goes_on_uncompiled = False
        try:
            outputs = self._objective(*inputs)
        except Exception as error:
            goes_on_uncompiled = self._uncompiles_on(error)
            if not goes_on_uncompiled:
                raise
        if goes_on_uncompiled:  # not in the handler, which keeps the failed call's tensors alive
            outputs = self._objective(*inputs)
        if not self._compiles or self._observer.call_ran_uncompiled() or self.error or not self._observer.has_graphs:
            self._on_eager()
            if self._budget is not None and self._budget.spent:
                self._budget.exceeded = True
        if self._budget is not None:
            self._budget.spend(self._observer.num_recompiles, self._observer.batch_shapes, self._undo)
        return outputs

    def _uncompiles_on(self, error: Exception) -> bool:
        """Whether the objective goes on uncompiled after an error; then it is uncompiled now. Raises a clearer error if
        there is one."""
        assert self._objective is not None
        shapes = self._observer.batch_shapes
        explained = dynamic_shapes.mark_error(self.config, error, shapes) or error
        if self.config.on_error == "eager" and self.error is None and is_compile_error(explained):
            self.error = first_line(explained)
            # Another program runs from here on: steps before and after do not compare.
            self._on_start("forward")
            self._on_end("forward")
            self._undo.close()
            uncompile(self._objective)
            return True
        if self._budget is not None and self._budget.caused(error):
            raise self._budget.error(shapes) from error
        if explained is not error:
            raise explained from error
        return False

    def facts(self) -> CompileFacts:
        """The facts since the real compiles began."""
        modes = {equivalent_mode(region.target.config) for region in self._regions} or {equivalent_mode(self.config)}
        observations = Observations(
            modes=frozenset(modes),
            num_cudagraphs=self._observer.num_cudagraphs,
            error=self.error,
            recompile_shapes=self._observer.recompile_shapes,
            over_budget=self._budget is not None and self._budget.exceeded,
            regions=self._regions,
            cudagraph_skips=frozenset(self._skips),
            tuned=self._tuned,
        )
        return facts.collect(self.config, observations)

    def recompiles(self) -> list[Recompile]:
        """The recompiles, in the order of CompileFacts.recompiles."""
        return recompiles.read_recompiles(self._observer.recompiled_modules)

    def skips_function(self) -> bool:
        """Whether a function is left to Python for good while the rest is compiled. False if all of the objective went
        on uncompiled: `on_eager` reports from which call on."""
        return self.error is None and graph_breaks.skips_function()
