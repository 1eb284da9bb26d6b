"""Row: the settings, measurements and machine of one run. Flat, frozen, units in the names.

A column that could not be measured is None, never a guess.
"""

import math
from dataclasses import dataclass

from trainkit.config.schema import Kind
from trainkit.results.calls import CallCost, PackageCost
from trainkit.results.columns import REQUIRED, OverRanks, OverRepeats, Section, column
from trainkit.results.cost import Cost
from trainkit.results.effective import CompileArtifacts, CompileCache, EagerSteps, Effective
from trainkit.results.requested import Requested

SCHEMA_VERSION = 3
# A version is raised when a figure changes its meaning: rows of two versions do not compare. Reports give the reason.
# Rows of version 1 have no `matmul_precision`.
SCHEMA_CHANGES = {
    2: "steady steps are found by their times",
    3: "a training step holds none of Lightning's loop",
}
KINDS = tuple(Kind)
COMPILE_KINDS = ("forward", "backward", "autotune", "cudagraph", "recompile")  # what compile seconds go into
STATUSES = ("ok", "failed", "oom", "compile_error", "nan", "timeout", "interrupted")
MEASURED_DIFF = {"unit": "relative", "over_repeats": OverRepeats.LARGEST}


@dataclass(frozen=True)
class Identity:
    """Which run it is, and how it ended."""

    run_id: str = column(REQUIRED, "Name of the run: the last two folders of its directory.")
    status: str = column(REQUIRED, f"How the run ended: {', '.join(STATUSES)}.")
    error: str | None = column(None, "Why the run did not end `ok`.")
    kind: str = column("train", "`train`, or `forward` for calls of the network alone.")
    num_restarts: int = column(
        0,
        "Restarts by torchrun (`--max-restarts`) or by a cluster. The row's figures are of the process after the last "
        "one; `row.1.json` and so on are the rows before.",
    )
    sweep_id: str | None = column(None, "Name of the sweep that the run belongs to.")
    repeat: int = column(0, "Number of the repeat in its sweep, from 0.")
    schema_version: int = column(SCHEMA_VERSION, "Version of these columns; figures of two versions do not compare.")


@dataclass(frozen=True)
class Machine:
    """The machine and versions of the run; known once it has started."""

    device_name: str | None = column(None, "Name of the GPU or the processor.", shown={Section.ENVIRONMENT: "device"})
    num_devices: int | None = column(
        None, "GPUs of the machine; on a CPU its logical cores.", shown={Section.ENVIRONMENT: "devices"}
    )
    machine_id: str | None = column(
        None,
        "Tells machines of one kind apart, which differ in speed: 8 digits of a hash of the boot of the system and the "
        "UUIDs of its GPUs.",
        shown={Section.ENVIRONMENT: "machine"},
    )
    device_index: int | None = column(
        None,
        "NVML's number of the GPU, of rank 0: cards of one kind differ in speed.",
        shown={Section.ENVIRONMENT: "GPU number"},
    )
    power_limit_w: float | None = column(
        None,
        "Power that the GPU may draw, by NVML: at this limit its clock falls.",
        unit="W",
        shown={Section.ENVIRONMENT: "power limit"},
    )
    world_size: int = column(1, "Processes that trained together.", shown={Section.ENVIRONMENT: "processes"})
    foreign_processes: int | None = column(
        None,
        "Other processes on the device, before the run used it or after its steady steps. In containers whose "
        "processes NVML does not know, memory that was in use before counts as one process.",
        over_ranks=OverRanks.SUM,
        over_repeats=OverRepeats.LARGEST,
        shown={Section.ENVIRONMENT: "foreign processes"},
    )
    beside_stopped_jobs: bool | None = column(
        None, "True of rows of an old harness: other jobs on the device were stopped while this one was measured."
    )
    torch_version: str | None = column(None, "Version of torch.", shown={Section.ENVIRONMENT: "torch"})
    triton_version: str | None = column(None, "Version of triton.", shown={Section.ENVIRONMENT: "triton"})
    cuda_version: str | None = column(
        None, "Version of CUDA that torch was built with.", shown={Section.ENVIRONMENT: "CUDA"}
    )
    python_version: str | None = column(None, "Version of Python.", shown={Section.ENVIRONMENT: "Python"})
    lightning_version: str | None = column(None, "Version of Lightning.", shown={Section.ENVIRONMENT: "lightning"})


@dataclass(frozen=True)
class Quality:
    """How good the trained network is, after the last epoch."""

    num_epochs: int = column(0, "Epochs that were trained to their end.", unit="epochs")
    train_loss: float | None = column(
        None,
        "Mean training loss of the last epoch.",
        title="Training loss",
        over_ranks=OverRanks.MEAN,
        over_repeats=OverRepeats.MEDIAN,
    )
    val_loss: float | None = column(
        None, "Mean validation loss.", over_ranks=OverRanks.MEAN, over_repeats=OverRepeats.MEDIAN
    )
    val_accuracy: float | None = column(
        None,
        "Fraction of the validation targets that were predicted, if that is the metric.",
        title="Accuracy",
        over_ranks=OverRanks.MEAN,
        over_repeats=OverRepeats.MEDIAN,
        higher_is_better=True,
    )
    metric_name: str | None = column(
        None, "Metric of the validation: `accuracy`, or its class; None without one, and in older rows."
    )
    metric_higher_is_better: bool | None = column(None, "Direction of the metric.")
    val_metric: float | None = column(None, "The metric over all of the validation.", over_repeats=OverRepeats.MEDIAN)
    num_val_targets: int | None = column(None, "Targets of a validation.", over_ranks=OverRanks.SUM)
    num_skipped_steps: int | None = column(
        None,
        "Steps that left the parameters as they were because a gradient overflowed fp16. Without a GradScaler: None.",
        unit="steps",
    )


@dataclass(frozen=True)
class Check:
    """With `check=true`: the largest relative differences to a float64 reference over the first steps or calls."""

    check_passed: bool | None = column(
        None, "Whether the numbers agree with eager's; None where that is unknown.", shown={Section.CHECK: "passed"}
    )
    check_loss_rel_diff: float | None = column(
        None, "Difference of the losses.", shown={Section.CHECK: "loss"}, **MEASURED_DIFF
    )
    check_eager_loss_rel_diff: float | None = column(
        None, "Eager's, in the same precision.", shown={Section.CHECK: "loss of eager"}, **MEASURED_DIFF
    )
    check_output_rel_diff: float | None = column(
        None, "Difference of the outputs of calls.", shown={Section.CHECK: "outputs"}, **MEASURED_DIFF
    )
    check_eager_output_rel_diff: float | None = column(
        None, "Eager's, in the same precision.", shown={Section.CHECK: "outputs of eager"}, **MEASURED_DIFF
    )
    check_grad_rel_diff: float | None = column(
        None, "Difference of the gradients.", shown={Section.CHECK: "gradients"}, **MEASURED_DIFF
    )
    check_eager_grad_rel_diff: float | None = column(
        None, "Eager's, in the same precision.", shown={Section.CHECK: "gradients of eager"}, **MEASURED_DIFF
    )
    check_param_rel_diff: float | None = column(
        None, "Difference of parameters and buffers.", shown={Section.CHECK: "parameters"}, **MEASURED_DIFF
    )
    check_eager_param_rel_diff: float | None = column(
        None, "Eager's, in the same precision.", shown={Section.CHECK: "parameters of eager"}, **MEASURED_DIFF
    )
    check_reason: str | None = column(
        None, "Why the check did not pass, or why it says nothing.", shown={Section.CHECK: "reason"}
    )
    check_gradients_agree: bool | None = column(
        None,
        "Whether after the backward all ranks have the same gradients, and these are the mean of what each computes by "
        "itself; None on one rank.",
        shown={Section.CHECK: "gradients of ranks agree"},
    )
    check_ranks_grad_rel_diff: float | None = column(
        None,
        "Difference of the gradients after the backward from the mean of what each rank computes by itself, in eager.",
        shown={Section.CHECK: "gradients off ranks' mean"},
        **MEASURED_DIFF,
    )
    check_graphs_agree: bool | None = column(
        None,
        "Whether all ranks captured equally many graphs for training.",
        shown={Section.CHECK: "graphs of ranks agree"},
    )
    check_kernels_agree: bool | None = column(
        None,
        "Whether inductor generated the same code for training on all ranks, kernels that were autotuned included; "
        "configurations that Triton chooses at a kernel's first launch are not compared.",
        shown={Section.CHECK: "kernels of ranks agree"},
    )
    check_ranks_reason: str | None = column(
        None, "Where the ranks do not agree, or why that is unknown.", shown={Section.CHECK: "ranks"}
    )


@dataclass(frozen=True)
class Code:
    """The version of this code that measured the run."""

    trainkit_version: str | None = column(
        None, "Version of trainkit; None in older rows.", shown={Section.ENVIRONMENT: "trainkit"}
    )
    git_commit: str | None = column(None, "Commit; None outside of git.", shown={Section.ENVIRONMENT: "commit"})
    git_dirty: bool | None = column(
        None, "Whether files differed from the commit.", shown={Section.ENVIRONMENT: "uncommitted changes"}
    )


COLUMN_GROUPS = (
    Identity,
    Machine,
    Requested,
    Effective,
    EagerSteps,
    CompileCache,
    CompileArtifacts,
    Cost,
    CallCost,
    PackageCost,
    Quality,
    Check,
    Code,
)


@dataclass(frozen=True)
class Row(
    Code,
    Check,
    Quality,
    PackageCost,
    CallCost,
    Cost,
    CompileArtifacts,
    CompileCache,
    EagerSteps,
    Effective,
    Requested,
    Machine,
    Identity,
):
    """One run, as it is written to `row.json`. A dataclass has the fields of its last base first: see COLUMN_GROUPS.

    Raises ValueError for an unknown status or kind.
    """

    def __post_init__(self) -> None:
        for name, allowed in (("status", STATUSES), ("kind", KINDS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} = {getattr(self, name)}: expected one of {', '.join(allowed)}")
        if self.world_size < 1:
            raise ValueError(f"world_size = {self.world_size}: expected a number of processes of at least 1")


def finite(value: float | None) -> float | None:
    """The value, or None if it is not a finite number: JSON knows neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None
