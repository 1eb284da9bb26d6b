"""Facts about compilation as text: graphs, kernels, compiled regions, graph breaks, recompiles, skipped steps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from trainkit.diagnosis.remedies.cuda_graphs import remedy_for_skip
from trainkit.diagnosis.remedies.graph_breaks import remedy_for_break
from trainkit.diagnosis.remedies.matching import Remedy
from trainkit.diagnosis.remedies.recompiles import BY_BATCH_SHAPE, guard, remedy_for_recompile
from trainkit.formatting import fixed, percent
from trainkit.report.labels import counted, counted_noun
from trainkit.results.facts import GraphSize, Region, TunedKernel
from trainkit.results.row import Row

MAX_GRAPHS = 4  # that are listed each


@dataclass(frozen=True)
class Cause:
    """A graph break, a recompile or a skipped CUDA graph: torch's reason, a remedy, and the seconds that it took."""

    reason: str
    remedy: Remedy
    time_s: float | None = None

    @property
    def is_validation(self) -> bool:
        """Whether it is the recompile that every run with a validation has: for a call without gradients."""
        return self.reason.endswith("GLOBAL_STATE changed: grad_mode")


def graph_break_causes(row: Row) -> list[Cause]:
    causes = []
    for site in row.graph_breaks or ():
        causes.append(Cause(f"{site.file}:{site.line}: {site.reason}", remedy_for_break(site)))
    return causes


def recompile_causes(row: Row) -> list[Cause]:
    """The recompiles of a run. If a size is the cause, the shapes of the batch replace torch's comment on the guard."""
    reasons = row.recompiles or []
    shapes: Iterable[list[list[int]] | None] = row.recompile_shapes or [None] * len(reasons)
    times_s: Iterable[float | None] = row.recompile_times_s or [None] * len(reasons)
    causes = []
    for reason, shape, time_s in zip(reasons, shapes, times_s, strict=True):
        remedy = remedy_for_recompile(reason, row.compile_dynamic)
        if shape and remedy in BY_BATCH_SHAPE:
            reason = f"{guard(reason)} (by a batch of {batch_shapes(shape)})"
        causes.append(Cause(reason, remedy, time_s))
    return causes


def skip_causes(row: Row) -> list[Cause]:
    return [Cause(reason, remedy_for_skip(reason)) for reason in row.cudagraph_skips or ()]


def batch_shapes(shapes: Iterable[list[int]]) -> str:
    """The shapes of a batch's inputs and targets."""
    return " and ".join(str(shape) for shape in shapes)


def compiled_regions(row: Row) -> str:
    """The regions that were compiled, each with its mode and graphs; "" if the whole network was."""
    labels = []
    for state, neighbours in groupby(
        row.compiled_parts or [], key=lambda region: _region_state(region, row.compile_mode)
    ):
        names = [region.name for region in neighbours]
        label = names[0]
        if len(names) > 1:
            label += f" to {names[-1]}"
        labels.append(f"{label} ({state})")
    return ", ".join(labels)


def _region_state(region: Region, default_mode: str) -> str:
    graphs = _region_graphs(region)
    if region.mode == default_mode:
        return graphs
    return f"{region.mode}, {graphs}"


def _region_graphs(region: Region) -> str:
    if region.num_calls == 0:
        return "never called"
    if region.reused or (region.reused is None and region.num_graphs == 0):  # None in old rows
        return "reused"
    if region.num_graphs == 0:
        return "no graph"
    return counted(region.num_graphs, "graph")


def graph_sizes(sizes: Sequence[GraphSize] | None) -> str:
    """The operations and inputs of each of a few graphs, or their ranges; "" if they are unknown or there is none."""
    distinct = list(dict.fromkeys(sizes or ()))
    if not distinct:
        return ""
    if len(distinct) <= MAX_GRAPHS:
        sizes_text = []
        for size in distinct:
            sizes_text.append(f"{counted(size.num_operations, 'operation')} on {counted(size.num_inputs, 'input')}")
        return ", ".join(sizes_text)
    operations = sorted(size.num_operations for size in distinct)
    inputs = sorted(size.num_inputs for size in distinct)
    return f"{operations[0]} to {operations[-1]} operations on {inputs[0]} to {inputs[-1]} inputs"


def tuned_kernels(kernels: Sequence[TunedKernel] | None) -> str:
    """The share of the autotuned operations for which each kernel was the fastest; "" if there is none."""
    by_operation: dict[str, list[TunedKernel]] = {}
    for kernel in kernels or ():
        by_operation.setdefault(kernel.operation, []).append(kernel)
    texts = []
    for operation, alternatives in by_operation.items():
        total = sum(kernel.num_operations for kernel in alternatives)
        most_first = sorted(alternatives, key=lambda kernel: -kernel.num_operations)
        shares = [f"{kernel.kernel} {kernel.num_operations} of {total}" for kernel in most_first]
        texts.append(f"{operation} by {', '.join(shares)}")
    return "; ".join(texts)


def uncompiled_steps(row: Row) -> str:
    """The number of steps that ran uncompiled although compilation was requested, and of the calls that each policy let
    run uncompiled; "" if none did."""
    if not row.num_eager_steps or row.compile_mode == "eager":
        return ""
    steps = f"{fixed(row.num_eager_steps, 0)} of {fixed(row.num_steps, 0)} {counted_noun(row)}s"
    text = f"{steps} ran uncompiled, as a whole or in part"
    for policy in row.policies or ():
        if policy.num_uncompiled:
            text += f"; {percent(policy.uncompiled_frac)} of all calls by {policy.setting}"
    return text


def skipped_steps(row: Row) -> str:
    """The number of steps that the gradient scaler skipped, and why; "" if there are none or there is no scaler."""
    if not row.num_skipped_steps:
        return ""
    steps = f"{fixed(row.num_skipped_steps, 0)} of {fixed(row.num_steps, 0)} steps"
    return f"{steps} skipped: a gradient overflowed fp16, and no parameter moved"
