"""Compiler, the one object of this package that others drive."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from trainkit.compiler import dynamic_shapes, dynamo, facts, graph_breaks, inductor, recompiles, startup
from trainkit.compiler.apply import compile_in_place, equivalent_mode, uncompile
from trainkit.compiler.budget import RecompileBudget
from trainkit.compiler.errors import first_line, is_compile_error
from trainkit.compiler.facts import Observations
from trainkit.compiler.observer import Observer
from trainkit.compiler.overlap import wait_where_used
from trainkit.compiler.policies import MIN_BATCH_SIZE, ON_ERROR, REST, STANCES, START, Policies
from trainkit.compiler.recompiles import Recompile
from trainkit.compiler.regions import CompiledRegion
from trainkit.config.schema import AUTOTUNE_MODES, CUDAGRAPH_MODES, EAGER_THEN_COMPILE, CompileConfig, DdpConfig
from trainkit.results.effective import CompileFacts
from trainkit.results.facts import TunedKernel

MAX_COMPILES = 100_000  # whose metrics torch keeps; by default the last 64, and a run with many shapes has more
# Inductor starts a collective as soon as its input is there, and waits for it before it starts the next one. Its passes
# that wait later choose the order of collectives by costs, and two ranks must not choose two orders.
OVERLAP = {
    "reorder_for_compute_comm_overlap": True,
    "reorder_for_compute_comm_overlap_passes": ["sink_waits", "raise_comms", wait_where_used],
}
# Without it torch caches no differentiated graph with an autograd.Function in it, as the fused loss is one, and a warm
# start traces and differentiates it again. torch will make it the default: https://github.com/pytorch/pytorch/pull/149751
CACHED = {"autograd_cache_allow_custom_autograd_functions": True}


class Compiler:
    """Compiles one objective in place, calls it, and reports the facts of its compiles.

    Between `__enter__` and `__exit__` it counts this process's compiles. Entering drops all compiled code, so that a
    second run in one process compiles again. `on_start` and `on_end` are called with its kind (COMPILE_KINDS) around
    every outermost compile and every CUDA-graph recording, `on_eager` after each call of the objective in which
    anything that should be compiled ran uncompiled. `memory_frac` returns the share of a device's memory in use.
    """

    def __init__(
        self,
        config: CompileConfig,
        on_start: Callable[[str], None] = lambda kind: None,
        on_end: Callable[[str], None] = lambda kind: None,
        on_eager: Callable[[], None] = lambda: None,
        memory_frac: Callable[[torch.device], float] = lambda device: 0.0,
    ):
        self.config = config
        self.error: str | None = None  # why the objective runs uncompiled, with on_error=eager
        self._compiles = config.mode != "eager"
        if self._compiles:
            inductor.use_ptxas_of_workers()
        self._on_start, self._on_end, self._on_eager = on_start, on_end, on_eager
        self._observer = Observer(on_start, on_end)
        self.listening = self._observer.listening  # in place of entering, for several compilers in turn
        self._budget: RecompileBudget | None = None
        if config.max_recompiles is not None:
            self._budget = RecompileBudget(config.max_recompiles, raises=config.on_recompile_limit == "raise")
        self._policies: Policies | None = Policies(config, memory_frac)
        if not self._compiles or not self._policies.in_effect:
            self._policies = None
        self._num_dropped = 0  # variants
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
        self._undo_settings.enter_context(dynamo.settings(optimize_ddp=ddp.optimize_ddp, **CACHED))
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
        if self.config.max_variants is not None:  # dropped ones count for torch's own limits
            limits = dict.fromkeys(dynamo.recompile_limits(), MAX_COMPILES)
            self._undo.enter_context(dynamo.settings(**limits))
        if self.config.start == EAGER_THEN_COMPILE:
            self._undo.enter_context(dynamo.eager_then_compile())
        self._regions = compile_in_place(
            self.config, objective, self._observer, self._undo, leave_hooks=ddp.strategy == "fsdp2"
        )

    def __call__(self, *batch: Any, is_rest: bool = False) -> Any:
        """The objective's outputs. With on_error=eager, an objective that cannot be compiled runs uncompiled.
        Nothing is compiled for a batch that is the rest of an epoch: a variant takes it, or it runs uncompiled.

        Raises RecompileLimitError if a call needs more than max_recompiles and on_recompile_limit=raise, MarkError, a
        ConfigError, if the objective fixes a dimension of compile.mark_dynamic."""
        assert self._objective is not None
        self._observer.begin_call(batch)
        if self._compiles or dynamo.CUDAGRAPH_TREES in sys.modules:
            # Outputs of the last call are no longer needed. Once anyone in a process says so, everyone must.
            torch.compiler.cudagraph_mark_step_begin()
        if self._compiles:
            dynamic_shapes.mark_dims(self.config.mark_dynamic, batch)
        policy = None
        if self._policies is not None:
            policy = self._policies.choose(batch, self._objective.training)
        if policy is None and is_rest and self._compiles:
            policy = REST
        goes_on_uncompiled = False
        try:
            if policy is None:
                outputs = self._objective(*batch)
            else:
                with torch.compiler.set_stance(STANCES[policy]):
                    outputs = self._objective(*batch)
        except Exception as error:
            goes_on_uncompiled = self._uncompiles_on(error, batch)
            if not goes_on_uncompiled:
                raise
        if goes_on_uncompiled:  # not in the handler, which keeps the failed call's tensors alive
            policy = ON_ERROR
            with torch.compiler.set_stance(STANCES[policy]):
                outputs = self._objective(*batch)
        self._end_call(policy)
        return outputs

    def _end_call(self, policy: str | None) -> None:
        """Report whether the call ran uncompiled, by a policy of STANCES or by none, and drop variants."""
        if policy == REST:
            return
        observer = self._observer
        ran_uncompiled = not self._compiles or observer.call_ran_uncompiled() or not observer.has_graphs
        if self.error or ran_uncompiled or policy in (MIN_BATCH_SIZE, ON_ERROR):
            self._on_eager()
            if self._budget is not None and self._budget.spent:
                self._budget.exceeded = True
            if self.error:
                policy = ON_ERROR
            elif self.config.start == EAGER_THEN_COMPILE and not observer.has_graphs:
                policy = START
        else:
            policy = None
        if self._policies is not None:
            self._policies.count(policy)
        if self._budget is not None:
            self._budget.spend(observer.num_recompiles, observer.batch_shapes, self._undo)
        if self.config.max_variants is not None and observer.compiled_in_call:
            self._num_dropped += dynamo.drop_variants(self.config.max_variants)
            if self._policies is not None:
                self._policies.forget_compiled()

    def _uncompiles_on(self, error: Exception, batch: tuple[Any, ...]) -> bool:
        """Whether the objective goes on uncompiled after an error; then it is uncompiled now. Raises a clearer error if
        there is one."""
        assert self._objective is not None
        explained = dynamic_shapes.mark_error(self.config, error, batch) or error
        if self.config.on_error == "eager" and self.error is None and is_compile_error(explained):
            # Another program runs from here on: steps before and after do not compare.
            self._on_start("forward")
            self._on_end("forward")
            assert self._policies is not None  # on_error is one
            if self._policies.fail(first_line(explained)):
                self.error = first_line(explained)
                self._undo.close()
                uncompile(self._objective)
            return True
        if self._budget is not None and self._budget.caused(error):
            raise self._budget.error(self._observer.batch_shapes) from error
        if explained is not error:
            raise explained from error
        return False

    def facts(self) -> CompileFacts:
        """The facts since the real compiles began."""
        modes = {equivalent_mode(region.target.config) for region in self._regions} or {equivalent_mode(self.config)}
        unsettled = None
        if self._policies is not None:
            unsettled = self._policies.unsettled()
        observations = Observations(
            modes=frozenset(modes),
            num_cudagraphs=self._observer.num_cudagraphs,
            error=self.error,
            recompile_shapes=self._observer.recompile_shapes,
            over_budget=self._budget is not None and self._budget.exceeded,
            unsettled=unsettled,
            regions=self._regions,
            cudagraph_skips=frozenset(self._skips),
            tuned=self._tuned,
        )
        collected = facts.collect(self.config, observations)
        if self.config.max_variants is not None and self._compiles:
            collected = replace(collected, num_dropped_variants=self._num_dropped)
        if self._policies is not None:
            collected = replace(collected, policies=self._policies.facts())
            if self.config.on_error == "eager":
                collected = replace(collected, num_compile_failures=self._policies.num_failures)
        return collected

    def recompiles(self) -> list[Recompile]:
        """The recompiles, in the order of CompileFacts.recompiles."""
        return recompiles.read_recompiles(self._observer.recompiled_modules)

    def skips_function(self) -> bool:
        """Whether a function is left to Python for good while the rest is compiled. False if all of the objective went
        on uncompiled: `on_eager` reports from which call on."""
        return self.error is None and graph_breaks.skips_function()
