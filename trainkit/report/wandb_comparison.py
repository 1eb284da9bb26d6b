"""The comparison of a sweep as a W&B run of the sweep's group."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import wandb

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Comparison, Group
from trainkit.analysis.dropping import Dropped
from trainkit.formatting import clean
from trainkit.report.figures import median_of
from trainkit.report.labels import group_label, work_label
from trainkit.report.verdicts import verdict

CHARTS = ("step_time_ms", "compile_time_s", "peak_allocated_bytes")


def publish(comparison: Comparison, page: str, sweep: str, folder: Path, logger: Mapping[str, Any]) -> None:
    """Log a table of all settings, with what was dropped, bar charts of step time, memory and compile time, and `page`.

    `logger` is the config of Lightning's WandbLogger (`project`, `offline`); files of an offline run lie in
    `<folder>/wandb`. Raises wandb.Error if the server cannot be reached.
    """
    mode: Literal["online", "offline"] = "offline" if logger.get("offline") else "online"
    with wandb.init(
        project=logger.get("project"),
        group=sweep,
        name=f"{sweep}-comparison",
        job_type="comparison",
        dir=str(folder),
        mode=mode,
        settings=wandb.Settings(console="off", silent=True),
    ) as run:
        logged: dict[str, Any] = {"comparison": _settings_table(comparison), "report": wandb.Html(page, inject=False)}
        for number, group in enumerate(comparison.groups):
            prefix = ""
            if len(comparison.groups) > 1:
                prefix = f"{number}/"
            for column in CHARTS:
                logged[f"{prefix}{column}"] = _bar_chart(group, column)
        run.log(logged)


@dataclass(frozen=True)
class _Record:
    """A setting in W&B's table; None for an unknown value. The verdict on a dropped one is the reason."""

    work: str
    setting: str
    runs: int
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    step_time_ms: float | None = None
    epoch_train_time_s: float | None = None
    compile_time_s: float | None = None
    break_even_steps: int | None = None
    peak_allocated_bytes: int | None = None
    metric_name: str | None = None
    val_metric: float | None = None
    verdict: str = ""


def _record(candidate: Candidate, group: Group) -> _Record:
    speedup, low, high, break_even_steps = None, None, None, None
    if candidate.speedup is not None:
        speedup, low, high = candidate.speedup.value, candidate.speedup.low, candidate.speedup.high
    if candidate.break_even is not None:
        break_even_steps = candidate.break_even.num_steps
    metric_name, val_metric = None, None
    if candidate.metric is not None:
        metric_name, val_metric = candidate.metric.name, candidate.metric.spread.median
    return _Record(
        work=group_label(group),
        setting=candidate.label,
        runs=candidate.num_repeats,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        step_time_ms=candidate.step_time_ms.median,
        epoch_train_time_s=median_of(candidate.epoch_train_time_s),
        compile_time_s=median_of(candidate.compile_time_s),
        break_even_steps=break_even_steps,
        peak_allocated_bytes=candidate.peak_allocated_bytes,
        metric_name=metric_name,
        val_metric=val_metric,
        verdict=verdict(candidate, group),
    )


def _dropped_record(dropped: Dropped) -> _Record:
    work, reason = clean(work_label(dropped.rows[0])), clean(f"dropped: {dropped.reason}")
    return _Record(work=work, setting=dropped.label, runs=len(dropped.rows), verdict=reason)


def _settings_table(comparison: Comparison) -> wandb.Table:
    records: list[Sequence[Any]] = []
    for group in comparison.groups:
        for candidate in group.candidates:
            records.append(astuple(_record(candidate, group)))
    for dropped in comparison.dropped:
        records.append(astuple(_dropped_record(dropped)))
    return wandb.Table(columns=[field.name for field in fields(_Record)], data=records)


def _bar_chart(group: Group, column: str) -> Any:
    bars: list[Sequence[Any]] = []
    for candidate in group.candidates:
        bars.append([candidate.label, getattr(_record(candidate, group), column)])
    table = wandb.Table(columns=["setting", column], data=bars)
    return wandb.plot.bar(table, "setting", column, title=column)
