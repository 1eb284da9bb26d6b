"""Rows -> comparison: which settings did the same work on the same machine, what each gains over eager, when it pays.

A *group* is the same work (settings.py) on the same machine, trained or called (a row's `kind`; a call is a step), so
that its step times can be ranked.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from statistics import median
from typing import Any

from trainkit.analysis import grouping
from trainkit.results.row import Row
from trainkit.stats import Ratio, ratio

COMPILE_PARTS = ("startup", "forward", "backward", "autotune", "cudagraph", "recompile")
AS_FAST = 1.02  # times the shortest step: what nobody would compile longer for without a number of steps in mind
WRONG = "numbers differ from eager in another run of this setting"


@dataclass(frozen=True)
class Spread:
    """The median over the repeats of a setting, the lowest and the highest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class BreakEven:
    """From where on a compiled training is ahead of an eager one: optimizer steps, epochs of the rows' length (None
    where that is unknown), and minutes of training in that setting, compiling included. `num_warm_steps` are the steps
    with a warm compile cache, None where there was no such run beside a colder one."""

    num_steps: int
    num_epochs: float | None
    minutes: float
    num_warm_steps: int | None = None


@dataclass(frozen=True)
class Setting:
    """What its repeats measured: medians with their spread, and the highest peak of memory.

    Compiling costs what it did in the runs that found the compile cache coldest; `warm_compile_time_s` is of those that
    found it warm beside them. With both mixed the cost would be nobody's.

    `num_lost` further runs of it failed. `over` is the label of the eager setting that differs in nothing but how it
    was compiled, and `speedup` eager's step time over its own (1 for eager); both are None without such a setting.
    `break_even`, over it, is None where this one is not measurably faster. `total_time_s` is compiling and the planned
    steps.
    `accuracy_within`: as far from eager's as repeats and the size of the validation set explain.
    """

    label: str
    rows: tuple[Row, ...]
    num_lost: int
    over: str | None
    speedup: Ratio | None
    step_time_ms: Spread
    compile_time_s: Spread | None
    warm_compile_time_s: Spread | None
    compile_parts_s: dict[str, float]
    epoch_train_time_s: Spread | None
    samples_per_s: Spread | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    peak_device_bytes: int | None
    val_accuracy: Spread | None
    accuracy_within: bool | None
    break_even: BreakEven | None
    total_time_s: float | None

    @property
    def num_repeats(self) -> int:
        return len(self.rows)

    @property
    def cache_found(self) -> str | None:
        """How the runs whose compile time counts found the cache."""
        return by_cache(self.rows)[0][0].cache_found


@dataclass(frozen=True)
class Group:
    """Settings that can be ranked, fastest step first. `overrides` are the further ones that all its rows share.

    `advised` is, of eager and what is measurably faster: where steps are planned the one that needs the least time in
    all, else the one that compiles soonest of those that are sure to come within AS_FAST of the surest step time. None
    where nothing is known to be faster or not.
    """

    kind: str
    model: str
    data: str
    batch_size: int | None
    world_size: int
    precision: str | None  # None where it differs between the settings
    overrides: tuple[str, ...]
    machine: dict[str, Any]
    settings: tuple[Setting, ...]
    num_planned_steps: int | None
    advised: Setting | None


@dataclass(frozen=True)
class Dropped:
    """Rows of one setting that do not take part, all for the same reason. What they measured is still in them."""

    label: str
    reason: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Comparison:
    """Every row given is in exactly one place: a repeat of a setting of a group, or dropped with its reason."""

    groups: tuple[Group, ...]
    dropped: tuple[Dropped, ...]


def compare(rows: Iterable[Row], num_planned_steps: int | None = None) -> Comparison:
    """Group rows, rank their settings against eager, and drop with its reason each row that would mislead."""
    rows = list(rows)
    out = dropped(rows)
    reasons = {id(row) for drop in out for row in drop.rows}
    kept = [row for row in rows if id(row) not in reasons]
    lost = Counter(grouping.identity(row) for row in rows if row.status not in ("ok", "interrupted"))
    groups = grouping.by(
        kept, lambda row: (grouping.hashable(grouping.work(row)), grouping.hashable(grouping.machine(row)))
    )
    return Comparison(tuple(_group(alike, num_planned_steps, lost) for alike in groups.values()), out)


def why_dropped(row: Row) -> str | None:
    """Why a row takes no part in a comparison, in one line of words; None where it does."""
    if row.status != "ok":
        lines = (row.error or "").strip().splitlines()
        if row.status == "oom" and lines:  # what was free then, and who had the rest, is another each time
            lines[0] = lines[0].split(" GPU ")[0]
        return f"{row.status}: {lines[0].removeprefix(f'{row.status}: ')}" if lines else row.status
    if row.effective_mode not in (None, row.compile_mode):
        because = f": {row.effective_mode_reason}" if row.effective_mode_reason else ""
        return f"asked {row.compile_mode}, got {row.effective_mode}{because}"
    for link in row.chain or []:
        if link.effective_mode not in (None, link.compile_mode):
            because = f": {link.effective_mode_reason}"
            return f"{link.settings}: asked {link.compile_mode}, got {link.effective_mode}{because}"
    if row.check_passed is False:
        return f"numbers differ from eager: {row.check_reason or 'check=true found so'}"
    step_time = step_time_ms(row)
    if step_time is not None and step_time <= 0:
        return f"a step time of {step_time} ms cannot be"
    if step_time is None:
        if row.kind == "forward":
            return f"no steady call among its {row.num_steps}: use more, forward.num_calls"
        return f"no steady step among its {row.num_steps}: train for more steps"
    return None


def _group(rows: list[Row], num_planned_steps: int | None, lost: Mapping[Hashable, int]) -> Group:
    varying = grouping.varying(rows)
    repeats = grouping.by(rows, grouping.identity)
    eager = {grouping.beside_compile(of[0]): of for of in repeats.values() if _runs_eager(of[0])}
    ranked = [
        _measured(
            grouping.label(of[0], varying),
            of,
            eager.get(grouping.beside_compile(of[0])),
            num_planned_steps,
            varying,
            lost,
        )
        for of in repeats.values()
    ]
    ranked.sort(key=lambda setting: setting.step_time_ms.median)
    first, worth = rows[0], _worth(ranked)
    if num_planned_steps is None:
        advised = min(_as_fast(worth), key=lambda setting: _compile_time_s(setting, worth), default=None)
    else:
        advised = min(worth, key=lambda s: _compile_time_s(s, worth) + num_planned_steps * _step_s(s), default=None)
    return Group(
        kind=first.kind,
        model=first.model,
        data=first.data,
        batch_size=first.batch_size,
        world_size=first.world_size,
        precision=first.precision if "amp.precision" not in varying else None,
        overrides=grouping.shared_overrides(rows),
        machine=grouping.machine(first),
        settings=tuple(ranked),
        num_planned_steps=num_planned_steps,
        advised=advised,
    )


def _worth(settings: list[Setting]) -> list[Setting]:
    """Eager and what is measurably faster; empty without eager, and where repeats are too few to tell."""
    eager = [setting for setting in settings if is_eager(setting)]
    others = [setting for setting in settings if setting not in eager and setting.speedup is not None]
    faster = [s for s in others if s.speedup is not None and s.speedup.measurable and s.speedup.value > 1]
    if not eager or not others or (not faster and any(s.speedup and s.speedup.measurable is None for s in others)):
        return []
    return [*eager, *faster]


def _as_fast(settings: list[Setting]) -> list[Setting]:
    """Those sure to come within AS_FAST of the surest step time: one lucky repeat makes no setting the best."""
    best = min(map(_sure_step_s, settings), default=0.0)
    return [setting for setting in settings if _sure_step_s(setting) <= AS_FAST * best]


def _sure_step_s(setting: Setting) -> float:
    """The step time at the slow end of its speed-up's interval."""
    speedup = setting.speedup
    sure = 1.0 if speedup is None or speedup.low is None else speedup.low / speedup.value
    return _step_s(setting) / sure


def _step_s(setting: Setting) -> float:
    return setting.step_time_ms.median / 1e3


def _compile_time_s(setting: Setting, among: list[Setting]) -> float:
    """What compiling costs, so that it compares: infinity where it is unknown, and where its runs found the cache
    warmer than those of another setting did."""
    if is_eager(setting):
        return 0.0
    coldest = min(_warmth(other) for other in among if not is_eager(other))
    known = setting.compile_time_s is not None and _warmth(setting) == coldest
    return setting.compile_time_s.median if known and setting.compile_time_s else inf


def _warmth(setting: Setting) -> int:
    """Unknown counts as cold, which it may have been."""
    return {"mixed": 1, "warm": 2}.get(setting.cache_found or "", 0)


def is_eager(setting: Setting) -> bool:
    return _runs_eager(setting.rows[0])


def _runs_eager(row: Row) -> bool:
    """Whether nothing is to be compiled, in all links of a chain."""
    return row.compile_mode == "eager" and all(link.compile_mode == "eager" for link in row.chain or ())


def _measured(
    label: str,
    rows: list[Row],
    eager: list[Row] | None,
    num_planned_steps: int | None,
    varying: list[str],
    lost: Mapping[Hashable, int],
) -> Setting:
    coldest, warm = by_cache(rows)
    step, compiling = _step_time(rows), _spread(row.compile_time_s for row in coldest)
    speedup = None if eager is None else Ratio(1.0, 1.0, 1.0) if eager is rows else _speedup(rows, eager)
    total = None
    if num_planned_steps is not None:
        cost = 0.0 if _runs_eager(rows[0]) else compiling.median if compiling else None
        total = None if cost is None else cost + num_planned_steps * step.median / 1e3
    return Setting(
        label=label,
        rows=tuple(rows),
        num_lost=lost.get(grouping.identity(rows[0]), 0),
        over=None if eager is None else grouping.label(eager[0], varying),
        speedup=speedup,
        step_time_ms=step,
        compile_time_s=compiling,
        warm_compile_time_s=_spread(row.compile_time_s for row in warm),
        compile_parts_s=_compile_parts(coldest),
        epoch_train_time_s=_spread(row.epoch_train_time_s for row in rows),
        samples_per_s=_spread(row.samples_per_s for row in rows),
        peak_allocated_bytes=_highest(row.peak_allocated_bytes for row in rows),
        peak_reserved_bytes=_highest(row.peak_reserved_bytes for row in rows),
        peak_device_bytes=_highest(row.peak_device_bytes for row in rows),
        val_accuracy=_spread(row.val_accuracy for row in rows),
        accuracy_within=None if eager is None else _accuracy_within(rows, eager),
        break_even=break_even(rows, eager) if eager and speedup and speedup.measurable and speedup.value > 1 else None,
        total_time_s=total,
    )


def _speedup(rows: list[Row], eager: list[Row]) -> Ratio:
    return ratio(step_times(eager), step_times(rows))


def by_cache(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The repeats that found the compile cache coldest (unknown is colder than warm), and where those are others the
    ones that found it warm."""
    for found in ("cold", "mixed", None):
        if coldest := [row for row in rows if row.cache_found == found]:
            return coldest, [row for row in rows if row.cache_found == "warm"]
    return list(rows), []


def break_even(rows: Sequence[Row], eager: Sequence[Row]) -> BreakEven | None:
    """From where on compiled repeats are ahead of eager ones: None where their steps take as long, or what compiling
    costs is unknown. Start-up is left out: it is the process's, not the network's."""
    compiling, warm = (_spread(row.compile_time_s for row in of) for of in by_cache(rows))
    step_s = _step_time(rows).median / 1e3
    saved_s = _step_time(eager).median / 1e3 - step_s
    if compiling is None or saved_s <= 0:
        return None
    num_steps = ceil(compiling.median / saved_s)
    per_epoch = [row.num_steps / row.num_epochs for row in rows if row.num_epochs and row.num_steps]
    return BreakEven(
        num_steps,
        num_steps / median(per_epoch) if per_epoch else None,
        (compiling.median + num_steps * step_s) / 60,
        ceil(warm.median / saved_s) if warm else None,
    )


def _compile_parts(rows: list[Row]) -> dict[str, float]:
    parts = {part: _spread(getattr(row, f"compile_{part}_s") for row in rows) for part in COMPILE_PARTS}
    return {part: spread.median for part, spread in parts.items() if spread is not None}


def _accuracy_within(rows: list[Row], eager: list[Row]) -> bool | None:
    """Whether the medians differ by no more than repeats do, or than two validation sets of that size would."""
    mine, its = _spread(row.val_accuracy for row in rows), _spread(row.val_accuracy for row in eager)
    if mine is None or its is None:
        return None
    sizes = [row.num_val_targets for row in (*rows, *eager) if row.num_val_targets]
    share = min(max((mine.median + its.median) / 2, 0.0), 1.0)
    # Two standard errors of a difference, and one target: where all are right the first says nothing.
    sampling = 2 * sqrt(2 * share * (1 - share) / min(sizes)) + 1 / min(sizes) if sizes else None
    repeats = max(mine.high - mine.low, its.high - its.low) if len(rows) > 1 and len(eager) > 1 else None
    allowed = [floor for floor in (sampling, repeats) if floor is not None]
    return abs(mine.median - its.median) <= max(allowed) if allowed else None


def dropped(rows: list[Row]) -> tuple[Dropped, ...]:
    """The rows that would mislead, each with its reason. One that failed may not know its machine, so it belongs to no
    group: its label tells it from all rows."""
    varying = grouping.varying(rows)
    wrong = {grouping.identity(row) for row in rows if row.check_passed is False}
    reasons = {id(row): why_dropped(row) or (WRONG if grouping.identity(row) in wrong else None) for row in rows}
    out = [row for row in rows if reasons[id(row)] is not None]
    alike = grouping.by(out, lambda row: (grouping.label(row, varying), reasons[id(row)] or ""))
    return tuple(Dropped(label, reason, tuple(of)) for (label, reason), of in alike.items())


def _step_time(rows: Sequence[Row]) -> Spread:
    step = _spread(map(step_time_ms, rows))
    assert step is not None  # why_dropped
    return step


def step_times(rows: Iterable[Row]) -> list[float]:
    """In milliseconds, of the rows that have one."""
    return [step_time for row in rows if (step_time := step_time_ms(row)) is not None]


def step_time_ms(row: Row) -> float | None:
    """What compares between rows; those of an older schema have steps of one shape, so their median."""
    return row.step_time_ms_p50 if row.step_time_ms is None else row.step_time_ms


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known)) if known else None


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
