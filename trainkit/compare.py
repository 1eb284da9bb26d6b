"""Rows -> comparison: which settings did the same work on the same machine, what each gains over eager, when it pays.

A *group* is the same work on the same machine: one model, data, batch size, number of batches to a step and of
processes, trained or called (a row's `kind`; a call is a step), so that its step times can be ranked. A *setting* is
everything else that was asked (compile, amp, ddp, optimizer, trainer ...). Rows of one setting are its repeats:
processes, not steps; they may differ in the seed.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf, sqrt
from statistics import median
from typing import Any, TypeVar

from trainkit.intervals import Ratio, noise_floor, ratio
from trainkit.results import Row

K = TypeVar("K", bound=Hashable)

# What was asked, by the name a user overrides it with, and the field of a Row that holds it.
FIELDS = {
    "kind": "kind",
    "model": "model",
    "data": "data",
    "data.batch_size": "batch_size",
    "data.batch_sizes": "batch_sizes",
    "world_size": "world_size",
    "compile.mode": "compile_mode",
    "compile.dynamic": "compile_dynamic",
    "compile.fullgraph": "compile_fullgraph",
    "compile.backend": "compile_backend",
    "compile.scope": "compile_scope",
    "compile.parts": "compile_parts",
    "compile.mark_dynamic": "compile_mark_dynamic",
    "compile.max_recompiles": "compile_max_recompiles",
    "compile.cache": "compile_cache",
    "amp.precision": "precision",
    "amp.matmul_precision": "matmul_precision",
    "ddp.strategy": "strategy",
    "forward.deadline_ms": "deadline_ms",
    "forward.fallback": "fallback",
}
MACHINE = (
    "device_name",
    "num_devices",
    "torch_version",
    "triton_version",
    "cuda_version",
    "python_version",
    "lightning_version",
)
# Without effect on an eager run: eager serves as baseline whatever they are.
COMPILE_ONLY = {name for name in FIELDS if name.startswith("compile.")} - {"compile.mode"} | {"ddp.optimize_ddp"}
# Known once a run has started; the row of one that died before has a default there.
STARTED_ONLY = {"world_size", "ddp.strategy"}
# Overrides that say nothing more: a field above holds what they lead to, or no step is trained differently for them.
SILENT = {
    "compile",
    "compile.on_error",
    "compile.on_recompile_limit",
    "trainer.accelerator",
    "trainer.devices",
    "seed",
    "sweep",
    "repeat",
} | {
    "amp",
    "check",
    "ckpt_path",
    "meters.breakdown",
    "logger",
}
COMPILE_PARTS = ("startup", "forward", "backward", "autotune", "cudagraph", "recompile")
AS_FAST = 1.02  # times the shortest step: what nobody would compile longer for without a number of steps in mind
WRONG = "numbers differ from eager in another run of this setting"
HUNGRIER = 1.01  # times the baseline's memory: the allocator's rounding is below


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
    `break_even` is None where it is not measurably faster. `total_time_s` is compiling and the planned steps.
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
    noise_floor: float | None
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


@dataclass(frozen=True)
class Change:
    """One setting against its baseline: medians of step time and peak memory now and then, and now over then."""

    kind: str
    model: str
    data: str
    batch_size: int | None
    world_size: int
    label: str
    step_time_ms: tuple[float, float]
    step_time: Ratio
    peak_allocated_bytes: tuple[float, float] | None
    memory: Ratio | None
    slower: bool
    hungrier: bool


@dataclass(frozen=True)
class Changes:
    """What changed since a baseline; the settings that are dropped now, and those that only one side measured, each
    with why."""

    changes: tuple[Change, ...]
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True)
class Contrast:
    """What rows with one choice of settings measured over those with another, all else that was asked being equal.

    `ratio` is of the median of a field; of step times (`field` None) how many times as fast. Of a share (a field
    `_frac`, which may be 0) there is none, but `shares`, the values of both. `beside` is what tells this pair from
    the other rows with these choices, by the names a user overrides: empty where there are none.
    """

    field: str | None
    of: str
    over: str
    beside: dict[str, str]
    ratio: Ratio | None
    shares: tuple[list[float], list[float]] | None = None


def compare(rows: Iterable[Row], num_planned_steps: int | None = None) -> Comparison:
    """Group rows, rank their settings against eager, and drop with its reason each row that would mislead."""
    rows = list(rows)
    out = _dropped(rows)
    reasons = {id(row) for drop in out for row in drop.rows}
    kept = [row for row in rows if id(row) not in reasons]
    lost = Counter(_identity(row) for row in rows if row.status not in ("ok", "interrupted"))
    groups = _by(kept, lambda row: (_hashable(_work(row)), _hashable(_machine(row))))
    return Comparison(tuple(_group(alike, num_planned_steps, lost) for alike in groups.values()), out)


def against(rows: Iterable[Row], baseline: Iterable[Row]) -> Changes:
    """Each setting against the same setting in a baseline: same work, same kind and number of devices. Versions may
    differ: what an upgrade does is the question. Slower: measurably, by repeats; hungrier: by more than 1 % and more
    than the repeats of both differ."""
    now, then = list(rows), list(baseline)
    varying = _varying([*now, *then])
    places = {_place(row) for row in [*now, *then]} - {""}

    def label(row: Row) -> str:
        return f"{_label(row, varying)}{f' on {_place(row)}' if len(places) > 1 else ''}"

    def settings(side: list[Row]) -> dict[Hashable, list[Row]]:
        out = {id(row) for drop in _dropped(side) for row in drop.rows}
        return _by([row for row in side if id(row) not in out], lambda row: (_identity(row), _place(row)))

    measured, stored = settings(now), settings(then)
    why = {_identity(row): drop.reason for drop in _dropped(now) for row in drop.rows}
    changes = tuple(_change(label(of[0]), of, stored[key]) for key, of in measured.items() if key in stored)
    gone = [of[0] for key, of in stored.items() if key not in measured]
    return Changes(
        changes,
        tuple(f"{label(row)}: {why[_identity(row)]}" for row in gone if _identity(row) in why),
        tuple(label(row) for row in gone if _identity(row) not in why),
        tuple(label(of[0]) for key, of in measured.items() if key not in stored),
    )


def contrasts(rows: Iterable[Row], of: str, over: str, field: str | None = None) -> list[Contrast]:
    """Rows with the overrides `of` ("compile.mode=default model.rewritten!=true") over those with `over`, for each
    work, machine and setting beside them that has both; `cache_found=warm` asks how the run found the compile cache.
    Where either says anything of compile.*, the rest of it need not be equal: ValueError where that leaves several
    settings on one side, which are no repeats of each other. Dropped rows take no part."""
    rows = list(rows)
    out = {id(row) for drop in _dropped(rows) for row in drop.rows}
    kept = [row for row in rows if id(row) not in out and _figure(row, field) is not None]
    chosen = [dict(word.split("=", 1) for word in words.split()) for words in (of, over)]

    named = {name.removesuffix("!") for words in chosen for name in words}
    compiled = any(name.startswith("compile.") for name in named)

    def beside(row: Row) -> dict[str, str]:
        rest = {k: v for k, v in _asked(row).items() if k not in named and not (compiled and k.startswith("compile."))}
        return {name: _words("", value).removeprefix("=") for name, value in (rest | _machine(row)).items()}

    sides = [_by([row for row in kept if _has(row, words)], lambda row: _hashable(beside(row))) for words in chosen]
    for words, side in zip((of, over), sides, strict=True):
        if any(len({_identity(row) for row in alike}) > 1 for alike in side.values()):
            raise ValueError(f"{words}: says several settings that were measured; add what tells them apart")
    every = [beside(of[0]) for side in sides for of in side.values()]
    names = dict.fromkeys(name for rest in every for name in rest)
    varying = [name for name in names if len({rest[name] for rest in every if name in rest}) > 1]
    pairs = [(beside(one[0]), one, sides[1][key]) for key, one in sides[0].items() if key in sides[1]]
    found = []
    for others, *two in pairs:
        these, those = ([_figure(row, field) for row in side] for side in two)
        apart = {name: others[name] for name in varying if name in others}
        if field and field.endswith("_frac"):
            found.append(Contrast(field, of, over, apart, None, (these, those)))
        else:
            found.append(Contrast(field, of, over, apart, ratio(these, those) if field else ratio(those, these)))
    return found


def _figure(row: Row, field: str | None) -> Any:
    return getattr(row, field) if field else step_time_ms(row)


def _has(row: Row, words: Mapping[str, str]) -> bool:
    asked = _asked(row) | {"cache_found": row.cache_found}

    def holds(name: str, value: str) -> bool:
        plain = name.removesuffix("!")
        return plain in asked and (_words("", asked[plain]).removeprefix("=") == value) == (plain == name)

    return all(holds(name, value) for name, value in words.items())


def _identity(row: Row) -> Hashable:
    return _hashable(_work(row)), _hashable(_setting(row))


def _place(row: Row) -> str:
    """What a row was measured on, as far as it must be the same for a change to mean something."""
    return f"{row.num_devices} x {row.device_name}" if row.device_name else ""


def _change(label: str, now: list[Row], then: list[Row]) -> Change:
    step_times = _step_times(now), _step_times(then)
    step_time = ratio(*step_times)
    peaks = [[row.peak_allocated_bytes for row in side if row.peak_allocated_bytes] for side in (now, then)]
    memory = ratio(*peaks) if all(peaks) else None
    return Change(
        now[0].kind,
        now[0].model,
        now[0].data,
        now[0].batch_size,
        now[0].world_size,
        label,
        (median(step_times[0]), median(step_times[1])),
        step_time,
        (median(peaks[0]), median(peaks[1])) if memory else None,
        memory,
        slower=bool(step_time.measurable) and step_time.value > 1,
        hungrier=memory is not None and memory.value > HUNGRIER and min(peaks[0]) > max(peaks[1]),
    )


def why_dropped(row: Row) -> str | None:
    """Why a row takes no part in a comparison, in one line of words; None where it does."""
    if row.status != "ok":
        lines = (row.error or "").strip().splitlines()
        return f"{row.status}: {lines[0].removeprefix(f'{row.status}: ')}" if lines else row.status
    if row.effective_mode not in (None, row.compile_mode):
        because = f": {row.effective_mode_reason}" if row.effective_mode_reason else ""
        return f"asked {row.compile_mode}, got {row.effective_mode}{because}"
    for link in row.chain or []:
        if link["effective_mode"] not in (None, link["compile_mode"]):
            because = f": {link['effective_mode_reason']}"
            return f"{link['settings']}: asked {link['compile_mode']}, got {link['effective_mode']}{because}"
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
    varying = _varying(rows)
    repeats = _by(rows, lambda row: _hashable(_setting(row)))
    eager = {_beside_compile(of[0]): of for of in repeats.values() if _runs_eager(of[0])}
    settings = [
        _measured(_label(of[0], varying), of, eager.get(_beside_compile(of[0])), num_planned_steps, varying, lost)
        for of in repeats.values()
    ]
    settings.sort(key=lambda setting: setting.step_time_ms.median)
    first, worth = rows[0], _worth(settings)
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
        overrides=_shared_overrides(rows),
        machine=_machine(first),
        settings=tuple(settings),
        noise_floor=noise_floor([_step_times(of) for of in repeats.values()]),
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
    """What compiling costs, so that it compares: infinity where it is unknown, and where only a warmed cache was seen
    beside settings that were compiled with a cold one."""
    if is_eager(setting):
        return 0.0
    cold = any(row.cache_found == "cold" for other in among for row in other.rows)
    warmed = all(row.cache_found in ("warm", "mixed") for row in setting.rows)
    known = setting.compile_time_s is not None and not (cold and warmed)
    return setting.compile_time_s.median if known and setting.compile_time_s else inf


def is_eager(setting: Setting) -> bool:
    return _runs_eager(setting.rows[0])


def _runs_eager(row: Row) -> bool:
    """Whether nothing is to be compiled, in all links of a chain."""
    return row.compile_mode == "eager" and all(link["compile_mode"] == "eager" for link in row.chain or ())


def _measured(
    label: str,
    rows: list[Row],
    eager: list[Row] | None,
    num_planned_steps: int | None,
    varying: list[str],
    lost: Mapping[Hashable, int],
) -> Setting:
    coldest, warm = _by_cache(rows)
    step, compiling = _step_time(rows), _spread(row.compile_time_s for row in coldest)
    speedup = None if eager is None else Ratio(1.0, 1.0, 1.0) if eager is rows else _speedup(rows, eager)
    total = None
    if num_planned_steps is not None:
        cost = 0.0 if _runs_eager(rows[0]) else compiling.median if compiling else None
        total = None if cost is None else cost + num_planned_steps * step.median / 1e3
    return Setting(
        label=label,
        rows=tuple(rows),
        num_lost=lost.get(_identity(rows[0]), 0),
        over=None if eager is None else _label(eager[0], varying),
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
        break_even=_break_even(rows, eager, speedup),
        total_time_s=total,
    )


def _speedup(rows: list[Row], eager: list[Row]) -> Ratio:
    return ratio(_step_times(eager), _step_times(rows))


def _by_cache(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The repeats that found the compile cache coldest (unknown is colder than warm), and where those are others the
    ones that found it warm."""
    for found in ("cold", "mixed", None):
        if coldest := [row for row in rows if row.cache_found == found]:
            return coldest, [row for row in rows if row.cache_found == "warm"]
    return rows, []


def _break_even(rows: list[Row], eager: list[Row] | None, speedup: Ratio | None) -> BreakEven | None:
    """Start-up is left out: it is the process's, not the network's."""
    compiling, warm = (_spread(row.compile_time_s for row in of) for of in _by_cache(rows))
    if eager is None or speedup is None or compiling is None or not speedup.measurable or speedup.value <= 1:
        return None
    step_s = _step_time(rows).median / 1e3
    saved_s = _step_time(eager).median / 1e3 - step_s
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


def _dropped(rows: list[Row]) -> tuple[Dropped, ...]:
    """A row that failed may not know its machine, so it belongs to no group: its label tells it from all rows."""
    varying = _varying(rows)
    wrong = {_identity(row) for row in rows if row.check_passed is False}
    reasons = {id(row): why_dropped(row) or (WRONG if _identity(row) in wrong else None) for row in rows}
    out = [row for row in rows if reasons[id(row)] is not None]
    alike = _by(out, lambda row: (_label(row, varying), reasons[id(row)] or ""))
    return tuple(Dropped(label, reason, tuple(of)) for (label, reason), of in alike.items())


def _asked(row: Row) -> dict[str, Any]:
    """Everything asked of a run that can change what it measures, by the name a user overrides it with."""
    fields = {name: getattr(row, field) for name, field in FIELDS.items()}
    if row.schema_version < 2:  # its rows did not say it
        del fields["amp.matmul_precision"]
    pairs = sorted(override.lstrip("+").partition("=")[::2] for override in row.overrides)
    # Hydra's sweeps write True for the `true` that somebody typed.
    pairs = [(name, value.lower() if value in ("True", "False") else value) for name, value in pairs]
    pairs = [(name, value) for name, value in pairs if not name.startswith("logger.")]
    overrides = {name: value for name, value in pairs if name not in FIELDS and name not in SILENT}
    return {name: value for name, value in (fields | overrides).items() if _applies(name, row)}


def _applies(name: str, row: Row) -> bool:
    if name in COMPILE_ONLY:
        return row.compile_mode != "eager"
    return row.device_name is not None or name not in STARTED_ONLY


def _is_work(name: str) -> bool:
    # The number of workers says how batches are fetched, not what is in them; a step of more batches is more work.
    of_step = (
        name.partition(".")[0] in ("kind", "model", "data", "world_size") or name == "trainer.accumulate_grad_batches"
    )
    return of_step and name != "data.num_workers"


def _work(row: Row) -> dict[str, Any]:
    return {name: value for name, value in _asked(row).items() if _is_work(name)}


def _setting(row: Row) -> dict[str, Any]:
    return {name: value for name, value in _asked(row).items() if not _is_work(name)}


def _beside_compile(row: Row) -> Hashable:
    """What a setting and its baseline have in common."""
    return _hashable({k: v for k, v in _setting(row).items() if k not in COMPILE_ONLY and k != "compile.mode"})


def _machine(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in MACHINE}


def _varying(rows: list[Row]) -> list[str]:
    """The names of what was asked differently, in the order in which a label says them; the mode always is."""
    asked = [(row, _asked(row)) for row in rows]
    names = dict.fromkeys(FIELDS) | dict.fromkeys(name for _, values in asked for name in values)
    answers = {name: {str(values.get(name)) for row, values in asked if _applies(name, row)} for name in names}
    return [name for name in names if name == "compile.mode" or len(answers[name]) > 1]


def _label(row: Row, varying: list[str]) -> str:
    asked = _asked(row)
    names = [name for name in varying if name in asked]
    return ", ".join(_words(name, asked[name]) for name in names)


def _words(name: str, value: Any) -> str:
    if name in ("kind", "model", "data", "compile.mode", "amp.precision"):
        return str(value)
    if name == "compile.parts" and value:
        value = "+".join("/".join(str(setting) for setting in part.values()) for part in value)
    if name == "compile.mark_dynamic" and value:
        value = "+".join(f"{dim['input']}.{dim['dim']}[{dim['min']}..{dim['max'] or ''}]" for dim in value)
    if name == "forward.fallback" and value:
        value = " / ".join(value)
    value = {None: "null", True: "true", False: "false"}[value] if isinstance(value, bool | None) else value
    return f"{name.removeprefix('compile.').removeprefix('forward.')}={value}"


def _shared_overrides(rows: list[Row]) -> tuple[str, ...]:
    said = {"model", "data", "data.batch_size", "compile.mode", "amp.precision"}
    shared = [override for override in rows[0].overrides if all(override in row.overrides for row in rows)]
    return tuple(
        override for override in shared if override.lstrip("+").partition("=")[0] not in said | SILENT - {"seed"}
    )


def _by(rows: list[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    """Rows by key, both in the order in which they were given."""
    alike: dict[K, list[Row]] = {}
    for row in rows:
        alike.setdefault(key(row), []).append(row)
    return alike


def _hashable(values: dict[str, Any]) -> Hashable:
    return tuple(sorted((name, str(value)) for name, value in values.items()))


def _step_time(rows: list[Row]) -> Spread:
    step = _spread(map(step_time_ms, rows))
    assert step is not None  # why_dropped
    return step


def _step_times(rows: Iterable[Row]) -> list[float]:
    return [step_time for row in rows if (step_time := step_time_ms(row)) is not None]


def step_time_ms(row: Row) -> float | None:
    """What compares between rows; those of an older schema have steps of one shape, so their median."""
    return row.step_time_ms_p50 if row.step_time_ms is None else row.step_time_ms


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known)) if known else None


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
