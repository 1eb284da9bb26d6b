"""Compares rows: groups those that can be ranked, measures each candidate against eager, recommends one."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from statistics import geometric_mean
from typing import Any

from trainkit.analysis import grouping
from trainkit.analysis.candidates import Baseline, Candidate, measure_candidate, most_accurate_of, runs_eager
from trainkit.analysis.dropping import Dropped, split_dropped
from trainkit.analysis.machines import machine_factors
from trainkit.analysis.scaling import Scaling, find_scalings
from trainkit.results.row import Row

AS_FAST = 1.02  # times the shortest step; without planned steps nobody compiles longer to gain less


@dataclass(frozen=True)
class Group:
    """Candidates that can be ranked, shortest step first: the same work on machines of one kind, all trained or all
    called.

    `overrides` are further ones that all rows share, `precision` is None if it differs between the candidates. `mode`
    is eager if nothing is compiled and labels do not say it, else None. `long_values` are those that labels leave out,
    by the name of the setting. `schema_version` is None if all groups have the same. See `recommend` for `recommended`.
    """

    kind: str
    model: str
    data: str
    batch_size: int | None
    world_size: int
    num_parallel_jobs: int
    calls_per_window: int | None
    precision: str | None
    mode: str | None
    overrides: tuple[str, ...]
    long_values: dict[str, str]
    schema_version: int | None
    machine: dict[str, Any]
    candidates: tuple[Candidate, ...]
    num_planned_steps: int | None
    recommended: Candidate | None

    @property
    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for candidate in self.candidates:
            rows += candidate.rows
        return rows

    @property
    def eager(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.is_eager]

    @property
    def compiled(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if not candidate.is_eager]


@dataclass(frozen=True)
class Comparison:
    """Every row is in exactly one place: a repeat of a candidate of a group, or dropped with its reason. `scalings`
    compare groups that differ in the number of processes."""

    groups: tuple[Group, ...]
    dropped: tuple[Dropped, ...]
    scalings: tuple[Scaling, ...] = ()


@dataclass(frozen=True)
class _Labels:
    """How the settings of a group are labelled; see Group for `mode` and `long_values`."""

    names: list[str]
    long_values: dict[str, str]
    mode: str | None

    def label(self, row: Row) -> str:
        return grouping.label(row, self.names, self.long_values)


def compare(rows: Iterable[Row], num_planned_steps: int | None = None) -> Comparison:
    """Group rows, rank their candidates against eager, and drop each row that would mislead, with the reason."""
    rows = list(rows)
    comparable, dropped = split_dropped(rows)
    num_failed = _failures(rows, comparable)
    groups = []
    for group_rows in grouping.group_by(comparable, grouping.group_key).values():
        groups.append(_group(group_rows, num_planned_steps, num_failed))
    if len({row.schema_version for row in comparable}) > 1:
        groups = [replace(group, schema_version=group.machine["schema_version"]) for group in groups]
    return Comparison(tuple(groups), dropped, find_scalings(comparable))


def _failures(rows: list[Row], comparable: list[Row]) -> Counter[Hashable]:
    """The number of failed runs by the machine key of their setting.

    A run that failed before it knew its machine counts for the setting that it was of, if that was measured on machines
    of one kind with one number of processes.
    """
    early_keys: dict[Hashable, set[Hashable]] = defaultdict(set)
    for row in comparable:
        early_keys[grouping.early_key(row)].add(grouping.machine_key(row))
    num_failed: Counter[Hashable] = Counter()
    for row in rows:
        if row.status in ("ok", "interrupted"):
            continue
        key = grouping.machine_key(row)
        if row.device_name is None:
            candidates = early_keys[grouping.early_key(row)]
            if len(candidates) == 1:
                (key,) = candidates
        num_failed[key] += 1
    return num_failed


def recommend(candidates: list[Candidate], num_planned_steps: int | None) -> Candidate | None:
    """Of eager and the candidates that are measurably faster and whose metric is not worse, the one to train with.

    With planned steps it is the one that needs the least time in all. Without, it is the one that compiles soonest of
    those whose step time is surely within AS_FAST of the shortest. None without eager, and if the repeats are too few
    or vary too much to know whether any candidate is faster.
    """
    eligible = _eligible(candidates)
    if num_planned_steps is None:
        fastest = _surely_fastest(eligible)
        return min(fastest, key=lambda candidate: _setup_time_s(candidate, eligible), default=None)

    def total_time_s(candidate: Candidate) -> float:
        return _setup_time_s(candidate, eligible) + num_planned_steps * _step_s(candidate)

    return min(eligible, key=total_time_s, default=None)


def _group(rows: list[Row], num_planned_steps: int | None, num_failed: Mapping[Hashable, int]) -> Group:
    first = rows[0]
    settings = list(grouping.group_by(rows, grouping.candidate_key).values())
    labels = _labels(rows, settings)
    candidates = _candidates(settings, labels, num_planned_steps, num_failed)
    precision = None if "amp.precision" in labels.names else first.precision
    return Group(
        kind=first.kind,
        model=first.model,
        data=first.data,
        batch_size=first.batch_size,
        world_size=first.world_size,
        num_parallel_jobs=first.num_parallel_jobs,
        calls_per_window=first.calls_per_window,
        precision=precision,
        mode=labels.mode,
        overrides=grouping.shared_overrides(rows),
        long_values=labels.long_values,
        schema_version=None,
        machine=grouping.machine_facts(first),
        candidates=tuple(candidates),
        num_planned_steps=num_planned_steps,
        recommended=recommend(candidates, num_planned_steps),
    )


def _labels(rows: list[Row], settings: list[list[Row]]) -> _Labels:
    """The labels of a group's settings. They leave out the mode if it is eager and they say anything else."""
    names = grouping.varying_names(rows)
    long_values = grouping.long_values(rows, names)
    without_mode = [name for name in names if name != "compile.mode"]
    for repeats in settings:
        if repeats[0].compile_mode != "eager" or not grouping.label(repeats[0], without_mode, long_values):
            return _Labels(names, long_values, None)
    return _Labels(without_mode, long_values, "eager")


def _candidates(
    settings: list[list[Row]], labels: _Labels, num_planned_steps: int | None, num_failed: Mapping[Hashable, int]
) -> list[Candidate]:
    """The candidates of a group, shortest step first."""
    baselines = {}
    for repeats in settings:
        if runs_eager(repeats[0]):
            own_key = grouping.baseline_keys(repeats[0])[0]
            baselines[own_key] = Baseline(labels.label(repeats[0]), repeats)
    most_accurate = most_accurate_of([baseline.rows for baseline in baselines.values()])
    factors = machine_factors(settings)
    candidates = []
    for repeats in settings:
        candidate = measure_candidate(
            labels.label(repeats[0]),
            repeats,
            _baseline(repeats[0], baselines),
            most_accurate,
            num_failed.get(grouping.machine_key(repeats[0]), 0),
            num_planned_steps,
            factors,
        )
        candidates.append(candidate)
    return sorted(candidates, key=_step_s)


def _baseline(row: Row, baselines: Mapping[Hashable, Baseline]) -> Baseline | None:
    for key in grouping.baseline_keys(row):
        if key in baselines:
            return baselines[key]
    return None


def _eligible(candidates: list[Candidate]) -> list[Candidate]:
    """Eager and the faster candidates that predict as well; empty without eager, and if the repeats cannot tell."""
    eager, compared, faster, unknown = [], [], [], []
    for candidate in candidates:
        if candidate.is_eager:
            if not candidate.has_worse_metric:
                eager.append(candidate)
        elif candidate.speedup is not None:
            compared.append(candidate)
            if candidate.is_faster and not candidate.has_worse_metric:
                faster.append(candidate)
            if candidate.speedup.measurable is None or (candidate.doubt and candidate.doubt.hides_gain):
                unknown.append(candidate)
    if not eager or not compared or (unknown and not faster):
        return []
    return eager + faster


def _surely_fastest(candidates: list[Candidate]) -> list[Candidate]:
    """Those surely within AS_FAST of the shortest sure step time: one lucky repeat makes no candidate the best."""
    shortest_s = min(map(_sure_step_s, candidates), default=0.0)
    return [candidate for candidate in candidates if _sure_step_s(candidate) <= AS_FAST * shortest_s]


def _sure_step_s(candidate: Candidate) -> float:
    """The step time that a candidate surely keeps: by the slow end of its speed-up's interval.

    The interval is of geometric means, so the step time is one, too. A median of eager's runs would leave out a slow
    one that is in the interval of each speed-up, and so make eager the fastest.
    """
    mean_s = geometric_mean(candidate.comparable_times_ms) / 1e3
    speedup = candidate.speedup
    if speedup is None or speedup.low is None:
        return mean_s
    return mean_s * speedup.value / speedup.low


def _step_s(candidate: Candidate) -> float:
    return candidate.comparable_step_ms.median / 1e3


def _setup_time_s(candidate: Candidate, rivals: list[Candidate]) -> float:
    """The set-up time to compare by: infinite if it is unknown, or if a rival's runs found the cache colder."""
    if candidate.is_eager:
        return 0.0
    coldest = min(_cache_warmth(rival) for rival in rivals if not rival.is_eager)
    if candidate.setup_time_s is None or _cache_warmth(candidate) > coldest:
        return inf
    return candidate.setup_time_s.median


def _cache_warmth(candidate: Candidate) -> int:
    """A cache of unknown state may have been cold, and counts as cold."""
    return {"mixed": 1, "warm": 2}.get(candidate.cache_found or "", 0)
