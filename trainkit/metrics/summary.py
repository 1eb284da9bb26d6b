"""Epochs -> columns of a row. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from trainkit.metrics.epochs import CompileClock, EpochCost, steps_by_epoch
from trainkit.metrics.foreign import foreign_cpu_frac
from trainkit.metrics.memory import Memory, highest
from trainkit.metrics.steps import (
    Step,
    StepKind,
    samples_per_s,
    steady,
    total_period_ms,
    typical_num_samples,
    typical_time_ms,
)
from trainkit.results.row import COMPILE_KINDS
from trainkit.stats import percentile


@dataclass(frozen=True)
class CompilerReport:
    """The compiler's share of a run's columns.

    `autotune_s`: seconds of autotuning, by the kind of compile they are part of, or `autotune` outside of compiles.
    `reports_eager`: whether it reports code that ran uncompiled. It does so once for functions that it leaves to
    Python for good (`skips_function`).
    """

    autotune_s: dict[str, float]
    reports_eager: bool
    skips_function: bool = False


def summarize(
    epochs: Sequence[EpochCost], kinds: Sequence[Sequence[StepKind]], clock: CompileClock, report: CompilerReport
) -> dict[str, Any]:
    """The columns of time and memory, and the numbers of steps; `kinds` are those of the steps of each epoch."""
    return {
        **compile_columns(epochs, clock, report.autotune_s),
        **step_columns(epochs, kinds),
        **eager_columns(epochs, report),
        **epoch_columns(epochs, kinds),
        **memory_columns(epochs),
    }


def compile_columns(epochs: Sequence[EpochCost], clock: CompileClock, autotune_s: dict[str, float]) -> dict[str, float]:
    """Start-up, the compile time and its parts, of the slowest rank; autotuning is taken out of the other parts."""
    parts_s = dict.fromkeys(COMPILE_KINDS, 0.0)
    for epoch in epochs:
        for kind in COMPILE_KINDS:
            parts_s[kind] += epoch.compile_s[kind]
    own_s = clock.seconds()  # with compiles of an epoch that broke off
    if sum(own_s.values()) > sum(parts_s.values()):
        parts_s = own_s
    for kind, seconds in autotune_s.items():
        if kind != "autotune":
            seconds = min(seconds, parts_s[kind])
            parts_s[kind] -= seconds
        parts_s["autotune"] += seconds
    columns = {"compile_startup_s": clock.startup.total_s, "compile_time_s": sum(parts_s.values())}
    for kind, seconds in parts_s.items():
        columns[f"compile_{kind}_s"] = seconds
    return columns


def step_columns(epochs: Sequence[EpochCost], kinds: Sequence[Sequence[StepKind]]) -> dict[str, Any]:
    """The numbers of steps by kind, and the figures of steady steps; None without a steady step."""
    all_kinds: list[StepKind] = []
    all_steps: list[Step] = []
    steady_epochs: list[list[Step]] = []
    steady_steps: list[Step] = []
    for epoch, epoch_kinds in zip(epochs, kinds, strict=True):
        all_kinds += epoch_kinds
        all_steps += epoch.steps
        steady_epochs.append(steady(epoch.steps, epoch_kinds))
        steady_steps += steady_epochs[-1]
    times_ms = [step.time_ms for step in steady_steps]
    spreads_ms = [step.rank_spread_ms for step in steady_steps]
    p25, p75 = percentile(times_ms, 25), percentile(times_ms, 75)
    iqr_ms = wait_frac = None
    if p25 is not None and p75 is not None:
        iqr_ms = p75 - p25
    if steady_steps:
        wait_frac = sum(step.wait_ms for step in steady_steps) / total_period_ms(steady_steps)
    return {
        "num_steps": len(all_kinds),
        "num_compiling_steps": all_kinds.count(StepKind.COMPILING),
        "num_warmup_steps": all_kinds.count(StepKind.WARMUP),
        "num_superseded_steps": all_kinds.count(StepKind.SUPERSEDED),
        "num_steady_steps": len(steady_steps),
        "steps_time_s": total_period_ms(all_steps) / 1e3,
        "step_time_ms": typical_time_ms(steps_by_epoch(epochs), steady_epochs),
        "step_time_ms_p50": percentile(times_ms, 50),
        "step_time_ms_p90": percentile(times_ms, 90),
        "step_time_ms_p99": percentile(times_ms, 99),
        "step_time_ms_iqr": iqr_ms,
        "rank_spread_ms": percentile(spreads_ms, 50),
        "samples_per_s": samples_per_s(steady_steps),
        "samples_per_step": typical_num_samples(steps_by_epoch(epochs), steady_epochs),
        "data_wait_frac": wait_frac,
    }


def eager_columns(epochs: Sequence[EpochCost], report: CompilerReport) -> dict[str, int | None]:
    """The number of steps in which code ran uncompiled, and of the others; None if that is not reported."""
    if not report.reports_eager:
        return {"num_compiled_steps": None, "num_eager_steps": None}
    num_steps = num_eager = 0
    for epoch in epochs:
        for step in epoch.steps:
            num_steps += 1
            if step.eager or report.skips_function:
                num_eager += 1
    return {"num_compiled_steps": num_steps - num_eager, "num_eager_steps": num_eager}


def epoch_columns(epochs: Sequence[EpochCost], kinds: Sequence[Sequence[StepKind]]) -> dict[str, float | None]:
    """Figures of complete epochs and validations in which nothing compiled, without the run's first epoch and without
    epochs that have superseded steps. The training time is that of whole epochs alone."""
    trained = []
    for epoch, epoch_kinds in zip(epochs, kinds, strict=True):
        is_typical = not epoch.compiled_in_training and StepKind.SUPERSEDED not in epoch_kinds
        if epoch.complete and epoch.from_start and is_typical:
            trained.append(epoch)
    whole = [epoch for epoch in trained if epoch.to_end]
    validated = [epoch for epoch in epochs if epoch.complete and not epoch.compiled_in_validation]
    train_times_s = [epoch.train_time_s for epoch in _without_first(whole, epochs)]
    overheads_ms, energies_j, cpu_times = [], [], []
    for epoch in _without_first(trained, epochs):
        if epoch.overhead_ms is not None:
            overheads_ms.append(epoch.overhead_ms)
        if epoch.energy_j is not None:
            energies_j.append(epoch.energy_j / len(epoch.steps))
        if epoch.cpu_time is not None:
            cpu_times.append(epoch.cpu_time)
    all_val_times_s = [epoch.val_time_s for epoch in _without_first(validated, epochs)]
    val_times_s = [time_s for time_s in all_val_times_s if time_s is not None]
    return {
        "epoch_train_time_s": _median(train_times_s),
        "epoch_val_time_s": _median(val_times_s),
        "step_overhead_ms": _median(overheads_ms),
        "energy_per_step_j": _median(energies_j),
        "foreign_cpu_frac": foreign_cpu_frac(cpu_times),
    }


def _without_first(candidates: list[EpochCost], epochs: Sequence[EpochCost]) -> list[EpochCost]:
    """The candidates without the run's first epoch, if there are others."""
    later = [epoch for epoch in candidates if epoch is not epochs[0]]
    return later or candidates


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def memory_columns(epochs: Sequence[EpochCost]) -> dict[str, int | None]:
    """The peaks of steps in which nothing compiled, and those of the others. If something compiled in all steps, both
    are the peaks of compiling steps."""
    compiling = highest([epoch.compile_peak for epoch in epochs])
    running = highest([epoch.steady_peak for epoch in epochs]) or compiling
    return {**_peak_columns("", running), **_peak_columns("compile_", compiling)}


def _peak_columns(prefix: str, peak: Memory | None) -> dict[str, int | None]:
    columns: dict[str, int | None] = {}
    for name in ("allocated", "reserved", "device"):
        columns[f"{prefix}peak_{name}_bytes"] = getattr(peak, name, None)
    return columns
