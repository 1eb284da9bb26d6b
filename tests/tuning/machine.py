"""A machine that is made up: it answers a race's jobs with rows, and its clock with their times."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.sweeps import ROW
from trainkit.config.factors import Factor, FactorValue
from trainkit.results.ledger import Ledger, RaceIdentity
from trainkit.results.row import Row
from trainkit.tuning.advisor import Advisor
from trainkit.tuning.budget import Budget
from trainkit.tuning.goal import Goal
from trainkit.tuning.measuring import BUDGET_END, BUDGET_SHARE, JobRequest, JobResult
from trainkit.tuning.space import Space

GIB = 2**30
FACTORS = [
    Factor(
        "compile.mode",
        {"default": FactorValue(), "reduce-overhead": FactorValue(), "max-autotune": FactorValue(inductor=10)},
    ),
    Factor("trainer.channels_last", {"true": FactorValue()}),
]
BEGINS = {
    "compile.mode": "default", "trainer.channels_last": "false", "trainer.activation_checkpointing": "false",
    "data.batch_size": "64",
}  # fmt: skip
IDENTITY = RaceIdentity(
    model="resnet18", data="synthetic", goal="", base=[], job_steps=100, device="H100", torch="2.13.0", config_digest=""
)


@dataclass
class Machine:
    """Step times by override, which multiply; compile seconds by mode, at an arm's first job alone; the seconds of a
    comparison with eager; and those of imports before the first job of each start."""

    step_ms: dict[str, float] = field(
        default_factory=lambda: {
            "compile.mode=eager": 20.0, "compile.mode=default": 15.0, "compile.mode=reduce-overhead": 10.0,
            "compile.mode=max-autotune": 9.9, "trainer.channels_last=true": 0.8,
        }
    )  # fmt: skip
    compile_s: dict[str, float] = field(default_factory=lambda: {"compile.mode=max-autotune": 300.0})
    fails: dict[str, dict] = field(default_factory=dict)  # the fields of the row, by an override of the arm
    hangs: tuple[str, ...] = ()
    spread: float = 0.001
    check_s: float = 5.0
    imports_s: float = 0.0
    is_started: bool = False
    now_s: float = 0.0
    jobs: list[JobRequest] = field(default_factory=list)

    def measure(self, request: JobRequest) -> JobResult:
        return self.timed(self.row)(request)

    def timed(self, row_of: Callable[[JobRequest], Row]) -> Callable[[JobRequest], JobResult]:
        """What measures by `row_of`: the row of a job, for which the machine's clock goes on."""

        def measure(request: JobRequest) -> JobResult:
            imports_s = 0.0 if self.is_started else self.imports_s
            self.is_started = True
            self.now_s += imports_s
            started_s = self.now_s
            row = row_of(request)
            return JobResult(row, self.now_s - started_s, imports_s)

        return measure

    def row(self, request: JobRequest) -> Row:
        is_first = request.name not in [job.name for job in self.jobs]
        chance = np.random.default_rng(len(self.jobs))
        self.jobs.append(request)
        step_ms, compile_s, fields, batch_size = 1.0, 0.0, {}, 64
        for override in request.overrides:
            step_ms *= self.step_ms.get(override, 1.0)
            compiles = override.startswith("compile.mode=") and override != "compile.mode=eager"
            if compiles and is_first:
                compile_s = self.compile_s.get(override, 25.0)
            if override.startswith("data.batch_size="):
                batch_size = int(override.partition("=")[2])
                step_ms *= 0.5 + 0.5 * batch_size / 64
            if override in self.fails:
                fields = self.fails[override]
        wall_s = 10 + compile_s + (self.check_s if request.check else 0)
        limit_s, source = min((request.timeout_s, BUDGET_SHARE), (request.budget_left_s, BUDGET_END))
        if wall_s > limit_s or set(self.hangs) & set(request.overrides):
            wall_s = limit_s
            fields = {"status": "timeout", "error": f"stopped after {limit_s:g} s ({source})"}
        self.now_s += wall_s
        measured = {
            "run_id": f"race/{len(self.jobs):03d}",
            "seed": request.repeat,
            "val_accuracy": None,
            "compile_mode": "eager" if "compile.mode=eager" in request.overrides else "default",
            "batch_size": batch_size,
            "step_time_ms": step_ms * math.exp(chance.normal(0, self.spread)),
            "step_time_ms_p99": 1.1 * step_ms,
            "compile_time_s": compile_s,
            "peak_device_bytes": batch_size * GIB // 16,
        }
        measured["effective_mode"] = measured["compile_mode"]
        if fields.get("check_passed") is False and not request.check:
            fields = {}
        return Row(**(vars(ROW) | measured | fields))

    def advisor(
        self,
        folder: Path,
        budget_s: float = 1200,
        goal: Goal | None = None,
        factors=FACTORS,
        job_limit_s: float | None = None,
    ) -> Advisor:
        """An advisor whose clock is the machine's, as one start of the command makes it."""
        self.is_started = False
        ledger = Ledger(folder, IDENTITY)
        budget = Budget(budget_s, ledger.used_s, job_limit_s=job_limit_s, now=lambda: self.now_s)
        space, goal = Space(factors, BEGINS), goal or Goal(batch_size=64)
        return Advisor(space, goal, budget, ledger, waits_for_imports=lambda name: not self.is_started)
