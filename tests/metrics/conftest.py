"""Steps and epochs made by hand, and the columns that they make."""

from collections.abc import Sequence
from typing import Any

from trainkit.metrics.epochs import CompileClock, EpochCost
from trainkit.metrics.memory import Memory
from trainkit.metrics.steps import Step, classify
from trainkit.metrics.summary import CompilerReport, summarize
from trainkit.results.row import COMPILE_KINDS

QUICK = ("compile.mode=eager", "trainer.max_epochs=2", "trainer.limit_train_batches=8")


def make_step(time_ms: float, num_batches: int = 1, **values: Any) -> Step:
    defaults = {"period_ms": time_ms, "wait_ms": 0.0, "compiled": False, "num_samples": 10 * num_batches}
    return Step(time_ms=time_ms, num_batches=num_batches, **defaults | values)


def make_cost(*steps: Step, **values: Any) -> EpochCost:
    defaults = {
        "complete": True, "train_time_s": 1.0, "val_time_s": None, "compile_s": compile_parts(0.0),
        "compiled_in_validation": False, "compile_peak": None, "steady_peak": Memory(1, 2, 3),
    }  # fmt: skip
    return EpochCost(steps=list(steps), **defaults | values)


def compile_parts(forward: float) -> dict[str, float]:
    return dict.fromkeys(COMPILE_KINDS, 0.0) | {"forward": forward}


def summary_of(epochs: Sequence[EpochCost], **report: Any) -> dict[str, Any]:
    defaults = {"autotune_s": {}, "reports_eager": True}
    kinds = classify([epoch.steps for epoch in epochs])
    return summarize(epochs, kinds, CompileClock(), CompilerReport(**defaults | report))
