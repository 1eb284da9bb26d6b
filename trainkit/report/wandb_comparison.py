"""The comparison of a sweep as a W&B run of the sweep's group."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.comparison import Comparison, Group
from trainkit.report.labels import group_label
from trainkit.report.verdicts import verdict

COLUMNS = (
    "work",
    "setting",
    "runs",
    "speedup",
    "speedup_low",
    "speedup_high",
    "step_time_ms",
    "compile_time_s",
    "break_even_steps",
    "peak_allocated_bytes",
    "val_accuracy",
    "verdict",
)


def publish(comparison: Comparison, page: str, sweep: str, folder: Path, logger: Mapping[str, Any]) -> None:
    """Log one table of all settings, bar charts of their step time, memory and compile time, and the HTML page.

    `logger` is the config of Lightning's WandbLogger (`project`, `offline`); files of an offline run lie in
    `<folder>/wandb`. Raises wandb.Error where the server cannot be reached.
    """
    with wandb.init(
        project=logger.get("project"),
        group=sweep,
        name=f"{sweep}-comparison",
        job_type="comparison",
        dir=str(folder),
        mode="offline" if logger.get("offline") else "online",
        settings=wandb.Settings(console="off", silent=True),
    ) as run:
        logged: dict[str, Any] = {"comparison": wandb.Table(columns=list(COLUMNS), data=_rows(comparison))}
        for number, group in enumerate(comparison.groups):
            prefix = f"{number}/" if len(comparison.groups) > 1 else ""
            logged |= {f"{prefix}{name}": chart for name, chart in _charts(group).items()}
        run.log(logged | {"report": wandb.Html(page, inject=False)})


def _rows(comparison: Comparison) -> list[list[Any]]:
    return [_row(setting, group) for group in comparison.groups for setting in group.candidates]


def _row(setting: Candidate, group: Group) -> list[Any]:
    gain = setting.speedup
    return [
        group_label(group),
        setting.label,
        setting.num_repeats,
        gain and gain.value,
        gain and gain.low,
        gain and gain.high,
        setting.step_time_ms.median,
        setting.compile_time_s and setting.compile_time_s.median,
        setting.break_even and setting.break_even.num_steps,
        setting.peak_allocated_bytes,
        setting.val_accuracy and setting.val_accuracy.median,
        verdict(setting, group),
    ]


def _charts(group: Group) -> dict[str, Any]:
    charts = {}
    for name in ("step_time_ms", "compile_time_s", "peak_allocated_bytes"):
        place = COLUMNS.index(name)
        bars = [[setting.label, _row(setting, group)[place]] for setting in group.candidates]
        charts[name] = wandb.plot.bar(wandb.Table(columns=["setting", name], data=bars), "setting", name, title=name)
    return charts
