"""Notes of a comparison: how its groups were measured, as far as that matters for reading the figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainkit.analysis.candidates import Candidate
from trainkit.analysis.company import steps_over_alone
from trainkit.analysis.comparison import Group
from trainkit.formatting import clean, decimals, fixed, percent
from trainkit.report.cascades import served_shares
from trainkit.report.compiler_facts import compiled_regions, skipped_steps, tuned_kernels
from trainkit.report.figures import ratio_text
from trainkit.report.labels import (
    ENOUGH_REPEATS,
    counted,
    is_busy,
    schema_changes,
    several_machines,
    several_versions,
    versioned_run_counts,
)

SINGLE_RUN = "One run only of {settings}: its spread is unknown. hydra.launcher.repeats={enough} shows it."
TWO_RUNS = "Two runs only of {settings}: such intervals are wide. hydra.launcher.repeats={enough} narrows them."
SHARED_CACHE = (
    "The compile cache was shared: kernels that one setting compiled or chose are found by the next, however cold its "
    "graphs. compile.cache=cold measures what each costs alone."
)
SIDE_BY_SIDE = (
    "{num} jobs ran side by side, each with its share of the cores; memory, caches and power they share. {cost}"
)
COST_UNKNOWN = "The same settings with hydra.launcher.parallel=1 show what that costs."
COST_BESIDE = "Their steps over those of the same settings alone, card by card where a card has runs of both: {ratios}."
NO_COMMON_CARD = "no such card"
QUEUED_REQUESTS = (
    "Missed: a request comes once in each {period} and waits for those before it, so one late call can make the next "
    "ones late too."
)
BUSY = (
    "Busy ({settings}): other processes took up to {share} of the processors' time, and steps may be longer for that. "
    "Measure again on an idle machine."
)
OTHER_VERSION = "Not compared with version {newest}: {runs} ({changes}). Measure again to compare."
AUTOTUNED_AGAIN = (
    "With a warm cache kernels are autotuned again, for much of the compile time ({shares}): torch 2.11 does not find "
    "all that it chose before (https://github.com/pytorch/pytorch/issues/172819, fixed in 2.12)."
)


@dataclass(frozen=True)
class Notes:
    """The notes of each group, in the order of the groups, and the notes that hold for all groups."""

    by_group: list[list[str]]
    shared: list[str]


def comparison_notes(groups: Sequence[Group]) -> Notes:
    general = [list(_general_notes(group, groups)) for group in groups]
    newest = max((group.schema_version or 0 for group in groups), default=0)
    shared: list[str] = []
    if general:
        shared = general[0]
    for notes in general:
        shared = [note for note in shared if note in notes]
    by_group = []
    for group, notes in zip(groups, general, strict=True):
        own = list(_version_notes(group, newest)) + list(_candidate_notes(group)) + notes
        by_group.append([clean(note) for note in own if note not in shared])
    return Notes(by_group, shared)


def _version_notes(group: Group, newest: int) -> Iterator[str]:
    if group.schema_version is not None and group.schema_version < newest:
        changes = schema_changes(group.schema_version, newest)
        yield OTHER_VERSION.format(runs=versioned_run_counts(group.rows), newest=newest, changes=changes)


def _candidate_notes(group: Group) -> Iterator[str]:
    candidates = group.candidates
    for num_repeats, note in ((1, SINGLE_RUN), (2, TWO_RUNS)):
        few = [candidate.label for candidate in candidates if candidate.num_repeats == num_repeats]
        if few:
            settings = "every setting" if len(few) == len(candidates) else "; ".join(few)
            yield note.format(settings=settings, enough=ENOUGH_REPEATS)
    yield from _busy_note(candidates)
    for candidate in candidates:
        most_skipped = max(candidate.rows, key=lambda row: row.num_skipped_steps or 0)
        skipped = skipped_steps(most_skipped)
        if skipped:
            yield f"{candidate.label}: {skipped}; the learning rate's schedule went on."
    for candidate in candidates:
        served = served_shares(candidate.rows)
        if served:
            yield f"{candidate.label}: {served}."
    yield from _compiler_notes(candidates)
    autotuned = _autotuned_shares(candidates)
    if autotuned:
        yield AUTOTUNED_AGAIN.format(shares="; ".join(autotuned))


def _busy_note(candidates: Sequence[Candidate]) -> Iterator[str]:
    settings, most = [], 0.0
    for candidate in candidates:
        busy = [row.foreign_cpu_frac or 0.0 for row in candidate.rows if is_busy(row)]
        if busy:
            settings.append(f"{candidate.label}, {len(busy)} of {counted(candidate.num_repeats, 'run')}")
            most = max(most, *busy)
    if settings:
        yield BUSY.format(settings="; ".join(settings), share=percent(most))


def _general_notes(group: Group, groups: Sequence[Group]) -> Iterator[str]:
    num_shared, any_cold = 0, False
    for candidate in group.candidates:
        cache_states = {row.cache_found for row in candidate.rows if row.compile_cache == "warm"}
        num_shared += any(cache_states)
        any_cold = any_cold or "cold" in cache_states
    if num_shared > 1 and any_cold:
        yield SHARED_CACHE
    yield from several_machines(group.rows)
    yield from several_versions(group.rows)
    if group.num_parallel_jobs > 1:
        yield SIDE_BY_SIDE.format(num=group.num_parallel_jobs, cost=_cost_beside(group, groups))
    first = group.candidates[0].rows[0]
    if first.deadline_ms is not None:
        period = "deadline"
        if first.period_ms is not None:
            period = f"{fixed(first.period_ms, decimals([first.period_ms], 2))} ms"
        yield QUEUED_REQUESTS.format(period=period)


def _cost_beside(group: Group, groups: Sequence[Group]) -> str:
    ratios = []
    for step in steps_over_alone(group, groups):
        label = step.candidate.label
        if not step.on_same_card:
            label += f"; {NO_COMMON_CARD}"
        ratios.append(f"{ratio_text(step.ratio)} ({label})")
    if not ratios:
        return COST_UNKNOWN
    return COST_BESIDE.format(ratios=", ".join(ratios))


def _compiler_notes(candidates: Sequence[Candidate]) -> Iterator[str]:
    """The regions that were compiled, and the kernels that autotuning chose: each distinct choice of the repeats."""
    for candidate in candidates:
        regions = compiled_regions(candidate.rows[0])
        if regions:
            yield f"{candidate.label}: compiled {regions}."
    for candidate in candidates:
        kernels = dict.fromkeys(tuned_kernels(row.tuned_kernels) for row in candidate.rows if row.tuned_kernels)
        if kernels:
            yield f"{candidate.label}: autotuned {'; or '.join(kernels)}."


def _autotuned_shares(candidates: Sequence[Candidate]) -> list[str]:
    """The candidates whose compiles with a warm cache autotuned kernels for more than half of the compile time.

    Only torch 2.11 does so: https://github.com/pytorch/pytorch/issues/172819.
    """
    shares = []
    for candidate in candidates:
        autotune_s = compile_time_s = 0.0
        for row in candidate.rows:
            if row.cache_found == "warm" and str(row.torch_version).startswith("2.11"):
                autotune_s += row.compile_autotune_s or 0.0
                compile_time_s += row.compile_time_s or 0.0
        if 2 * autotune_s > compile_time_s:
            shares.append(f"{percent(autotune_s / compile_time_s)} of {candidate.label}")
    return shares
