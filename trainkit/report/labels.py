"""Labels: of the work, the machine and the settings of a group, and of two settings that are compared.

Model names, overrides and devices come from users and logs: labels are one line without control characters.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainkit.analysis import grouping
from trainkit.analysis.comparison import Comparison, Group
from trainkit.analysis.regressions import Change
from trainkit.formatting import clean, fixed
from trainkit.results.columns import columns
from trainkit.results.row import Row

VERSIONS = {
    "torch": "torch_version",
    "triton": "triton_version",
    "CUDA": "cuda_version",
    "Python": "python_version",
    "lightning": "lightning_version",
}


def step_noun(measured: Row | Group | Change) -> str:
    """`call` of a forward-only run, else `step`."""
    return "call" if measured.kind == "forward" else "step"


def work_label(measured: Row | Group | Change) -> str:
    """Model, data, batch size and number of processes."""
    label = f"{measured.model} on {measured.data}"
    if measured.batch_size is not None:
        label += f", batch {fixed(measured.batch_size, 0)}"
    if measured.world_size > 1:
        label += f", {measured.world_size} processes"
    if measured.kind == "forward":
        label += ", forward only"
    return label


def group_label(group: Group) -> str:
    """The work of a group, its precision and the overrides that all its rows share."""
    settings = list(group.overrides)
    if group.precision:
        settings.insert(0, group.precision)
    return clean(", ".join([work_label(group), *settings]))


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


def machine_labels(groups: Sequence[Group]) -> list[str]:
    """A label for each group, "" if its machine is the one of the group before it."""
    labels = []
    previous = ""
    for group in groups:
        label = machine_label(group.machine)
        labels.append("" if label == previous else label)
        previous = label
    return labels


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
    choice_words, baseline_words = choice.split(), baseline.split()
    shared = [word for word in choice_words if word in baseline_words]
    if len(shared) in (len(choice_words), len(baseline_words)):
        shared = []
    return ChoiceLabels(
        _join_overrides(word for word in choice_words if word not in shared),
        _join_overrides(word for word in baseline_words if word not in shared),
        _join_overrides(shared),
    )


def _join_overrides(overrides: Iterable[str]) -> str:
    return ", ".join(grouping.short_override(override) for override in overrides)


def pair_label(column: str | None, choice: str, baseline: str) -> str:
    """`Speed of dynamic=true over dynamic=false (default)`. A fraction is no ratio: `with ... and with ...`."""
    labels = choice_labels(choice, baseline)
    compared = "Speed"
    if column is not None:
        compared = columns(Row)[column].title or column
    if column is not None and column.endswith("_frac"):
        label = f"{compared} with {labels.choice} and with {labels.baseline}"
    else:
        label = f"{compared} of {labels.choice} over {labels.baseline}"
    return f"{label} ({labels.shared})" if labels.shared else label


def dropped_title(comparison: Comparison) -> str:
    return f"Dropped: {run_count(sum(len(dropped.rows) for dropped in comparison.dropped))}"


def run_count(count: int) -> str:
    return counted(count, "run")


def counted(count: int | None, noun: str) -> str:
    """`1 run`, `2 runs`, `- runs` if the count is unknown."""
    return f"{fixed(count, 0)} {noun}" if count == 1 else f"{fixed(count, 0)} {noun}s"
