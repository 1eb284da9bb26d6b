"""Pairwise comparisons: one choice of settings against another, everything else that was requested being equal."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from statistics import median

from trainkit.analysis import grouping
from trainkit.analysis.candidates import metrics_differ, values_of
from trainkit.analysis.choices import requirements_of, rows_with
from trainkit.analysis.dropping import drop_reasons, step_times_ms
from trainkit.analysis.machines import of_common_machines, ratio_within_machines, step_ratio
from trainkit.results.optimized import METRIC, is_maximized
from trainkit.results.row import Row
from trainkit.stats import Ratio

METRIC_COLUMNS = (METRIC, "val_accuracy")
CACHE = "compile.cache"
# No compile is in these, whatever its cache, unless calls have several shapes. None is the speed-up.
OF_CALLS_AND_STEPS = {None, "step_time_ms", "samples_per_s", "second_call_ms", "mean_after_first_ms"}
SHARED_NOTE = "without these graphs in it"
WARM_NOTES = {"mixed": "with a partly warm cache", "warm": "with a warm cache"}
Conditions = tuple[tuple[str, str], ...]  # settings and machine, each a name and its value as text


@dataclass(frozen=True)
class PairwiseComparison:
    """Rows with one choice of settings against rows with another, everything else that was requested being equal.

    `ratio` is the choice's `column` over the baseline's; without a column it is the speed-up, the baseline's step time
    over the choice's. A fraction (a column `_frac`) may be 0 and has no ratio, only the values of both sides; so has
    any column of which a value is not above 0.
    `conditions` tell this pair from the others of the same two choices, by the name of a setting; they are empty for
    a single pair. `notes` say that a side did not run as requested, and why. `choice_rows` and `baseline_rows` are
    the rows that were compared.
    """

    column: str | None
    choice: str
    baseline: str
    conditions: dict[str, str]
    ratio: Ratio | None
    choice_values: list[float] = field(default_factory=list)
    baseline_values: list[float] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    choice_rows: tuple[Row, ...] = ()
    baseline_rows: tuple[Row, ...] = ()

    @property
    def of_fraction(self) -> bool:
        return is_fraction(self.column)

    @property
    def of_metric(self) -> bool:
        return self.column in METRIC_COLUMNS

    @property
    def higher_is_better(self) -> bool | None:
        """Whether a ratio above 1 is better; None if the rows do not tell the direction of their metric."""
        if self.column is None:
            return True
        return is_maximized(self.column, self.choice_rows + self.baseline_rows)

    @property
    def choice_is_higher(self) -> bool:
        return median(self.choice_values) > median(self.baseline_values)

    @property
    def metric_differs(self) -> bool:
        return self.of_metric and metrics_differ(self.choice_rows, self.baseline_rows)


def is_fraction(column: str | None) -> bool:
    """Whether a column holds fractions, which may be 0."""
    return column is not None and column.endswith("_frac")


def compare_pairs(
    rows: Iterable[Row], choice: str, baseline: str, column: str | None = None
) -> list[PairwiseComparison]:
    """Compare rows with the settings of `choice` with rows with those of `baseline`, a pair for each set of conditions,
    numbers ascending.

    If either choice names a setting of compile.*, the other settings of compile.* may differ; times of compiles have a
    pair for each `compile.cache`, and steady steps are repeats of each other whatever it is. Rows that a comparison
    drops take no part, except runs that were only partly compiled: those get a note. Compile times are those of repeats
    that found the compile cache in the same state, the coldest that both sides have, unless a choice names
    `cache_found`; a pair without such repeats is left out. Raises ValueError if a choice fits several candidates under
    the same conditions: they are no repeats of each other.
    """
    usable = _usable_rows(list(rows), column)
    chosen_names = {requirement.name for requirement in requirements_of(choice) + requirements_of(baseline)}
    choice_repeats = _rows_by_conditions(usable, choice, chosen_names, column)
    baseline_repeats = _rows_by_conditions(usable, baseline, chosen_names, column)
    by_cache = _is_of_compiles(column) and "cache_found" not in chosen_names
    distinguishing = _distinguishing(list(choice_repeats) + list(baseline_repeats), grouping.implied_names(usable))
    pairs = []
    for conditions, repeats in choice_repeats.items():
        if conditions not in baseline_repeats:
            continue
        choice_rows, baseline_rows = repeats, baseline_repeats[conditions]
        if by_cache:
            choice_rows, baseline_rows = _of_common_cache(choice_rows, baseline_rows)
            if not choice_rows:
                continue
        choice_rows, baseline_rows = of_common_machines(choice_rows, baseline_rows)
        notes = _notes([*choice_rows, *baseline_rows])
        if by_cache:
            notes += _cache_notes(choice_rows[0], CACHE in distinguishing)
        pair = PairwiseComparison(
            column=column,
            choice=choice,
            baseline=baseline,
            conditions=_conditions_named(dict(conditions), distinguishing),
            ratio=_ratio(choice_rows, baseline_rows, column),
            choice_values=_values(choice_rows, column),
            baseline_values=_values(baseline_rows, column),
            notes=notes,
            choice_rows=tuple(choice_rows),
            baseline_rows=tuple(baseline_rows),
        )
        pairs.append(pair)
    return _sorted_by_conditions(pairs, distinguishing)


def _sorted_by_conditions(pairs: list[PairwiseComparison], names: list[str]) -> list[PairwiseComparison]:
    """The pairs by their texts and facts of the machine, as the rows have them; of equals by their numbers."""
    values, texts, numbers = {}, [], []
    for name in names:
        values[name] = list(dict.fromkeys(pair.conditions.get(name, "") for pair in pairs))
        if grouping.are_numbers(name, values[name]):
            values[name].sort(key=float)
            numbers.append(name)
        else:
            texts.append(name)

    def place(pair: PairwiseComparison) -> list[int]:
        return [values[name].index(pair.conditions.get(name, "")) for name in texts + numbers]

    return sorted(pairs, key=place)


def _usable_rows(rows: list[Row], column: str | None) -> list[Row]:
    """The rows with a value that a comparison keeps, or drops only for being partly compiled, or uncompiled by a
    policy."""
    as_requested = []
    for row in rows:
        if _is_partly_uncompiled(row):
            row = replace(row, effective_mode=row.compile_mode)
        as_requested.append(row)
    usable = []
    for row, reason in zip(rows, drop_reasons(as_requested), strict=True):
        if reason is None and _values([row], column):
            usable.append(row)
    return usable


def _rows_by_conditions(
    rows: list[Row], choice: str, chosen_names: set[str], column: str | None
) -> dict[Conditions, list[Row]]:
    """The rows with the settings of a choice, by their other settings and their machine."""
    by_conditions = grouping.group_by(rows_with(choice, rows), lambda row: _conditions(row, chosen_names, column))
    for repeats in by_conditions.values():
        compared = repeats
        if column in OF_CALLS_AND_STEPS:
            compared = [replace(row, compile_cache="") for row in repeats]
        if len({grouping.candidate_key(row) for row in compared}) > 1:
            raise ValueError(f"{choice}: fits several settings that were measured; add what tells them apart")
    return by_conditions


def _is_of_compiles(column: str | None) -> bool:
    return column is not None and column.startswith("compile_")


def _of_common_cache(choice_rows: list[Row], baseline_rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of both sides that found the compile cache in the same state, the coldest that both have; none without
    such a state."""
    for state in ("cold", *WARM_NOTES):
        choices = [row for row in choice_rows if _cache_state(row) == state]
        baselines = [row for row in baseline_rows if _cache_state(row) == state]
        if choices and baselines:
            return choices, baselines
    return [], []


def _cache_state(row: Row) -> str:
    """The state of the compile cache at the start. What a run with a cold one finds, it has compiled itself; a cache of
    unknown state had nothing for these graphs."""
    if row.compile_cache == "cold" or row.cache_found is None:
        return "cold"
    return row.cache_found


def _cache_notes(row: Row, caches_differ: bool) -> tuple[str, ...]:
    """A note on a compile cache that was not cold, or on a shared one that was, where others had one of their own."""
    state = _cache_state(row)
    if caches_differ and state == "cold" and row.compile_cache != "cold":
        return (SHARED_NOTE,)
    return (WARM_NOTES[state],) if state in WARM_NOTES else ()


def _conditions(row: Row, chosen_names: set[str], column: str | None) -> Conditions:
    compile_named = any(name.startswith("compile.") for name in chosen_names)
    conditions = []
    for name, value in (grouping.requested(row) | grouping.machine_facts(row)).items():
        may_differ = compile_named and name.startswith("compile.") and not (name == CACHE and _is_of_compiles(column))
        if name in chosen_names or may_differ:
            continue
        conditions.append((name, grouping.value_text(name, value)))
    return tuple(conditions)


def _distinguishing(all_conditions: list[Conditions], implied: set[str]) -> list[str]:
    """The names whose values differ between the conditions, except those that other names imply."""
    names: dict[str, None] = {}
    for conditions in all_conditions:
        names |= dict.fromkeys(dict(conditions))
    distinguishing = []
    for name in names:
        values = set()
        for conditions in all_conditions:
            values.add(_conditions_named(dict(conditions), [name]).get(name))
        # Eager rows have no compile.*: that alone does not tell conditions apart.
        if name in grouping.COMPILE_ONLY:
            values.discard(None)
        if len(values) > 1 and name not in implied:
            distinguishing.append(name)
    return distinguishing


def _conditions_named(conditions: dict[str, str], names: list[str]) -> dict[str, str]:
    """The conditions with these names. One that only other pairs have is `unset`, unless eager rows lack it anyway."""
    shown = {}
    for name in names:
        if name in conditions or name not in grouping.COMPILE_ONLY:
            shown[name] = conditions.get(name, "unset")
    return shown


def _values(rows: list[Row], column: str | None) -> list[float]:
    if column is None:
        return step_times_ms(rows)
    return values_of(rows, column)


def _ratio(choice_rows: list[Row], baseline_rows: list[Row], column: str | None) -> Ratio | None:
    values = _values(choice_rows + baseline_rows, column)
    if is_fraction(column) or min(values) <= 0:
        return None
    if column is None:
        return step_ratio(baseline_rows, choice_rows)  # of step times: how many times as fast
    return ratio_within_machines(choice_rows, baseline_rows, attrgetter(column))


def _notes(rows: list[Row]) -> tuple[str, ...]:
    """A note for each distinct way in which steps of these rows ran uncompiled."""
    notes: dict[str, None] = {}
    for row in rows:
        uncompiled = f"{row.num_eager_steps} of {row.num_steps} steps uncompiled"
        if _is_partly_uncompiled(row):
            notes[f"{uncompiled} ({row.effective_mode_reason})"] = None
        elif _used_policies(row):
            notes[f"{uncompiled} ({', '.join(_used_policies(row))})"] = None
    return tuple(notes)


def _is_partly_uncompiled(row: Row) -> bool:
    """Whether a part ran uncompiled although all should be compiled, or a policy let all run uncompiled."""
    return row.effective_mode == "mixed" or (row.effective_mode == "eager" and bool(_used_policies(row)))


def _used_policies(row: Row) -> list[str]:
    """The settings that let steps run uncompiled."""
    return [policy.setting for policy in row.policies or () if policy.num_uncompiled]
