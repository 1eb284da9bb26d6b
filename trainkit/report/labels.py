"""Labels: of the work, the machine and the settings of a group, and of two settings that are compared.

Model names, overrides and devices come from users and logs: labels are one line without control characters.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainkit.analysis import grouping
from trainkit.analysis.comparison import Comparison, Group
from trainkit.analysis.machines import machines_of
from trainkit.analysis.pairs import PairwiseComparison, is_fraction
from trainkit.analysis.regressions import Change
from trainkit.analysis.studies import PlannedComparison
from trainkit.formatting import clean, fixed
from trainkit.results.columns import columns
from trainkit.results.metric import metric_of
from trainkit.results.optimized import METRIC
from trainkit.results.row import SCHEMA_CHANGES, Row

VERSIONS = {
    "torch": "torch_version",
    "triton": "triton_version",
    "CUDA": "cuda_version",
    "Python": "python_version",
    "lightning": "lightning_version",
}
CHANGE_NOTE = (
    "Step times are medians and ranges of the runs; a factor is the ratio of geometric means, so with times far apart "
    "it is not that of the medians."
)
SEVERAL_VERSIONS = (
    "The file of the network changed between these runs: {counts}. Compare settings only where all have the same."
)
SEVERAL_MACHINES = (
    "The runs are of {num} machines of one kind. A ratio is taken machine by machine where both settings have runs on "
    "the same ones, and settings are ranked by times as on the average machine: neither always agrees with the medians."
)
MOST_IN_NAME = 2  # settings of a group's own that its name has; more stand below it
BUSY_FRAC = 0.1  # of the processors' time that other processes took: texts say so from here on
ENOUGH_REPEATS = 5  # of a sweep: what every advice to repeat names


def step_noun(measured: Row | Group | Change) -> str:
    """`call` of a forward-only run, else `step`."""
    return "call" if measured.kind == "forward" else "step"


def is_busy(row: Row) -> bool:
    """Whether other processes took so much of the processors' time meanwhile that texts say so."""
    return row.foreign_cpu_frac is not None and row.foreign_cpu_frac >= BUSY_FRAC


def counted_noun(row: Row) -> str:
    """The noun of a row's counts of steps: `window` if calls were timed in windows."""
    return step_noun(row) if row.calls_per_window is None else "window"


def work_label(measured: Row | Group | Change) -> str:
    """Model, data, batch size, number of processes, and jobs beside it."""
    label = f"{measured.model} on {measured.data}"
    if measured.batch_size is not None:
        label += f", batch {fixed(measured.batch_size, 0)}"
    if measured.world_size > 1:
        label += f" for each of {measured.world_size} processes"
    if measured.num_parallel_jobs > 1:
        label += f", {measured.num_parallel_jobs} jobs side by side"
    if measured.kind == "forward":
        label += ", forward only"
    if measured.calls_per_window is not None:
        label += f", back to back in windows of {fixed(measured.calls_per_window, 0)}"
    return label


def group_label(group: Group, left_out: Collection[str] = ()) -> str:
    """The work of a group, its precision, TF32 if float32 products are in it, `eager` if labels do not say it, the
    overrides that its rows share but for those to leave out, and its schema version if it is one of several."""
    parts = [work_label(group)]
    if group.precision is not None:
        parts.append(group.precision)
    if _has_tf32(group):
        arithmetic = "TF32" if group.precision is not None else "32-true in TF32"
        parts.append(arithmetic)
    if group.mode is not None:
        parts.append(group.mode)
    parts += [override for override in group.overrides if override not in left_out]
    if group.schema_version is not None:
        parts.append(f"schema version {group.schema_version}")
    return clean(", ".join(parts))


def _has_tf32(group: Group) -> bool:
    """Whether there are rows in float32, and all of them multiply in TF32: a label says so only where it was typed."""
    rows = [row for row in group.rows if row.precision == "32-true"]
    return bool(rows) and all(row.accelerator == "gpu" and row.matmul_precision == "high" for row in rows)


def machine_label(machine: Mapping[str, Any]) -> str:
    """Devices and versions; "-" if none is known."""
    facts = []
    device = machine.get("device_name")
    if device:
        facts.append(f"{machine.get('num_devices')} x {device}")
    for package, column in VERSIONS.items():
        version = machine.get(column)
        if version:
            facts.append(f"{package} {version}")
    return clean(", ".join(facts)) or "-"


@dataclass(frozen=True)
class Heading:
    """The name of a group, and lines below it: its own settings if they are many, the machine if it is not that of the
    group before, and values that its labels leave out."""

    name: str
    details: list[str]


def headings(groups: Sequence[Group]) -> list[Heading]:
    """A heading for each group. What all groups share is said below the first one alone."""
    if not groups:
        return []
    shared = [override for override in groups[0].overrides if all(override in group.overrides for group in groups)]
    all_headings: list[Heading] = []
    previous = ""
    for group in groups:
        details = []
        own = [override for override in group.overrides if override not in shared]
        left_out = shared
        if len(own) > MOST_IN_NAME:
            details.append(clean(f"with {', '.join(own)}"))
            left_out = own + shared
        machine = machine_label(group.machine)
        if machine != previous:
            details.append(machine)
        if shared and not all_headings:
            details.append(clean(f"all with {', '.join(shared)}"))
        for name, value in group.long_values.items():
            details.append(clean(f"{grouping.short_name(name)}: {value}"))
        all_headings.append(Heading(group_label(group, left_out), details))
        previous = machine
    return all_headings


@dataclass(frozen=True)
class ChoiceLabels:
    """Two choices of settings without the settings that they share, and the shared ones."""

    choice: str
    baseline: str
    shared: str


def choice_labels(choice: str, baseline: str) -> ChoiceLabels:
    """Label two choices of settings, given as overrides with spaces between them.

    Nothing counts as shared if one choice would have no setting of its own.
    """
    choice_overrides, baseline_overrides = choice.split(), baseline.split()
    shared = [override for override in choice_overrides if override in baseline_overrides]
    if len(shared) in (len(choice_overrides), len(baseline_overrides)):
        shared = []
    return ChoiceLabels(
        _join_overrides(choice_overrides, shared), _join_overrides(baseline_overrides, shared), _join_overrides(shared)
    )


def _join_overrides(overrides: Iterable[str], left_out: Sequence[str] = ()) -> str:
    labels = []
    for override in overrides:
        if override not in left_out:
            labels.append(grouping.short_override(override))
    return ", ".join(labels)


def settings_label(choice: str) -> str:
    """The label of a choice of settings: `default, dynamic=true`."""
    return _join_overrides(choice.split())


def pair_label(pair: PlannedComparison | PairwiseComparison) -> str:
    """`Speed of dynamic=true over dynamic=false (default)`. A fraction is no ratio: `with ... and with ...`."""
    labels = choice_labels(pair.choice, pair.baseline)
    compared = compared_label(pair)
    if is_fraction(pair.column):
        label = f"{compared} with {labels.choice} and with {labels.baseline}"
    else:
        label = f"{compared} of {labels.choice} over {labels.baseline}"
    if labels.shared:
        label += f" ({labels.shared})"
    return label


def compared_label(pair: PlannedComparison | PairwiseComparison) -> str:
    """What is compared: `Speed` or the title of the column; of `val_metric` the name of the metric, if rows tell it."""
    if pair.column is None:
        return "Speed"
    if isinstance(pair, PairwiseComparison) and pair.column == METRIC and pair.choice_rows:
        metric = metric_of(pair.choice_rows[0])
        if metric is not None:
            return metric.name
    return columns(Row)[pair.column].title or pair.column


def schema_changes(older: int, newer: int) -> str:
    """Why rows of an older schema version do not compare with those of a newer one."""
    changes = []
    for version in range(older + 1, newer + 1):
        change = SCHEMA_CHANGES.get(version, "figures mean something else")
        changes.append(f"since version {version} {change}")
    return ", ".join(changes)


def several_machines(rows: Iterable[Row]) -> list[str]:
    """A note if the rows are of several machines of one kind."""
    num = len(machines_of(rows))
    return [SEVERAL_MACHINES.format(num=num)] if num > 1 else []


def several_versions(rows: Iterable[Row]) -> list[str]:
    """A note if the file of the network changed between the rows. Old rows do not tell their file."""
    num_rows = Counter(row.network_digest for row in rows if row.network_digest is not None)
    if len(num_rows) < 2:
        return []
    counts = ", ".join(f"{run_count(num_rows[digest])} of {digest}" for digest in sorted(num_rows))
    return [SEVERAL_VERSIONS.format(counts=counts)]


def versioned_run_counts(rows: Iterable[Row]) -> str:
    """`3 runs of schema version 2`, for each version."""
    counts = Counter(row.schema_version for row in rows)
    return ", ".join(f"{run_count(counts[version])} of schema version {version}" for version in sorted(counts))


def dropped_title(comparison: Comparison) -> str:
    num_rows = sum(len(dropped.rows) for dropped in comparison.dropped)
    return f"Dropped: {run_count(num_rows)}"


def run_count(count: int) -> str:
    return counted(count, "run")


def counted(count: int | None, noun: str) -> str:
    """`1 run`, `2 runs`, `- runs` if the count is unknown."""
    if count == 1:
        return f"1 {noun}"
    return f"{fixed(count, 0)} {noun}s"
