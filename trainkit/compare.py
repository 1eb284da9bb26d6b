"""Rows -> comparison: which settings did the same work on the same machine, and what each gains over eager.

A *group* is the same work on the same machine: one model, data, batch size and number of processes, so that its step
times can be ranked. A *setting* is everything else that was asked (compile, amp, ddp, optimizer, trainer ...). Rows of
one setting are its repeats: processes, not steps; they may differ in the seed.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from trainkit.results import Row

K = TypeVar("K", bound=Hashable)

# What was asked, by the name a user overrides it with, and the field of a Row that holds it.
FIELDS = {
    "model": "model",
    "data": "data",
    "data.batch_size": "batch_size",
    "world_size": "world_size",
    "compile.mode": "compile_mode",
    "compile.dynamic": "compile_dynamic",
    "compile.fullgraph": "compile_fullgraph",
    "compile.backend": "compile_backend",
    "compile.scope": "compile_scope",
    "compile.cache": "compile_cache",
    "amp.precision": "precision",
    "ddp.strategy": "strategy",
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
SILENT = {"compile", "compile.on_error", "trainer.accelerator", "trainer.devices", "seed", "sweep", "repeat"}


@dataclass(frozen=True)
class Spread:
    """The median over the repeats of a setting, the lowest and the highest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Setting:
    """What its repeats measured: medians with their spread, and the highest peak of memory.

    `speedup` is eager's median step time over its own; its low and high are the extremes that any pair of repeats can
    give. It is 1 for eager, and None where no eager row differs in nothing but how it was compiled.
    """

    label: str
    rows: tuple[Row, ...]
    speedup: Spread | None
    step_time_ms: Spread
    compile_time_s: Spread | None
    epoch_train_time_s: Spread | None
    samples_per_s: Spread | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    peak_device_bytes: int | None
    val_accuracy: Spread | None

    @property
    def num_repeats(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Group:
    """Settings that can be ranked, fastest step first. `overrides` are the further ones that all its rows share."""

    model: str
    data: str
    batch_size: int | None
    world_size: int
    precision: str | None  # None where it differs between the settings
    overrides: tuple[str, ...]
    machine: dict[str, Any]
    settings: tuple[Setting, ...]


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


def compare(rows: Iterable[Row]) -> Comparison:
    """Group rows, rank their settings against eager, and drop with its reason each row that would mislead."""
    rows = list(rows)
    kept = [row for row in rows if why_dropped(row) is None]
    groups = _by(kept, lambda row: (_hashable(_work(row)), _hashable(_machine(row))))
    return Comparison(tuple(_group(alike) for alike in groups.values()), _dropped(rows))


def why_dropped(row: Row) -> str | None:
    """Why a row takes no part in a comparison, in one line of words; None where it does."""
    if row.status != "ok":
        lines = (row.error or "").strip().splitlines()
        return f"{row.status}: {lines[0].removeprefix(f'{row.status}: ')}" if lines else row.status
    if row.effective_mode not in (None, row.compile_mode):
        because = f": {row.effective_mode_reason}" if row.effective_mode_reason else ""
        return f"asked {row.compile_mode}, got {row.effective_mode}{because}"
    if row.step_time_ms_p50 is None:
        return f"no steady step among its {row.num_steps}: train for more steps"
    return None


def _group(rows: list[Row]) -> Group:
    varying = _varying(rows)
    repeats = _by(rows, lambda row: _hashable(_setting(row)))
    eager = {_beside_compile(of[0]): _step_time(of) for of in repeats.values() if of[0].compile_mode == "eager"}
    settings = [_measured(_label(of[0], varying), of, eager.get(_beside_compile(of[0]))) for of in repeats.values()]
    first = rows[0]
    return Group(
        model=first.model,
        data=first.data,
        batch_size=first.batch_size,
        world_size=first.world_size,
        precision=first.precision if "amp.precision" not in varying else None,
        overrides=_shared_overrides(rows),
        machine=_machine(first),
        settings=tuple(sorted(settings, key=lambda setting: setting.step_time_ms.median)),
    )


def _measured(label: str, rows: list[Row], eager: Spread | None) -> Setting:
    step = _step_time(rows)
    if eager is None:
        speedup = None
    elif rows[0].compile_mode == "eager":
        speedup = Spread(1.0, 1.0, 1.0)
    else:
        speedup = Spread(eager.median / step.median, eager.low / step.high, eager.high / step.low)
    return Setting(
        label=label,
        rows=tuple(rows),
        speedup=speedup,
        step_time_ms=step,
        compile_time_s=_spread(row.compile_time_s for row in rows),
        epoch_train_time_s=_spread(row.epoch_train_time_s for row in rows),
        samples_per_s=_spread(row.samples_per_s for row in rows),
        peak_allocated_bytes=_highest(row.peak_allocated_bytes for row in rows),
        peak_reserved_bytes=_highest(row.peak_reserved_bytes for row in rows),
        peak_device_bytes=_highest(row.peak_device_bytes for row in rows),
        val_accuracy=_spread(row.val_accuracy for row in rows),
    )


def _dropped(rows: list[Row]) -> tuple[Dropped, ...]:
    """A row that failed may not know its machine, so it belongs to no group: its label tells it from all rows."""
    varying = _varying(rows)
    out = [row for row in rows if why_dropped(row) is not None]
    alike = _by(out, lambda row: (_label(row, varying), why_dropped(row) or ""))
    return tuple(Dropped(label, reason, tuple(of)) for (label, reason), of in alike.items())


def _asked(row: Row) -> dict[str, Any]:
    """Everything asked of a run that can change what it measures, by the name a user overrides it with."""
    fields = {name: getattr(row, field) for name, field in FIELDS.items()}
    pairs = sorted(override.lstrip("+").partition("=")[::2] for override in row.overrides)
    overrides = {name: value for name, value in pairs if name not in FIELDS and name not in SILENT}
    return {name: value for name, value in (fields | overrides).items() if _applies(name, row)}


def _applies(name: str, row: Row) -> bool:
    if name in COMPILE_ONLY:
        return row.compile_mode != "eager"
    return row.device_name is not None or name not in STARTED_ONLY


def _is_work(name: str) -> bool:
    # The number of workers says how batches are fetched, not what is in them.
    return name.partition(".")[0] in ("model", "data", "world_size") and name != "data.num_workers"


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
    # `amp=bf16` says the precision, and more.
    names = [name for name in varying if name in asked and not (name == "amp.precision" and "amp" in asked)]
    return ", ".join(_words(name, asked[name]) for name in names)


def _words(name: str, value: Any) -> str:
    if name in ("model", "data", "compile.mode", "amp.precision"):
        return str(value)
    value = {None: "null", True: "true", False: "false"}[value] if isinstance(value, bool | None) else value
    return f"{name.removeprefix('compile.')}={value}"


def _shared_overrides(rows: list[Row]) -> tuple[str, ...]:
    said = {"model", "data", "data.batch_size", "compile.mode", "amp", "amp.precision", "sweep", "repeat"}
    shared = [override for override in rows[0].overrides if all(override in row.overrides for row in rows)]
    return tuple(override for override in shared if override.lstrip("+").partition("=")[0] not in said)


def _by(rows: list[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    """Rows by key, both in the order in which they were given."""
    alike: dict[K, list[Row]] = {}
    for row in rows:
        alike.setdefault(key(row), []).append(row)
    return alike


def _hashable(values: dict[str, Any]) -> Hashable:
    return tuple(sorted((name, str(value)) for name, value in values.items()))


def _step_time(rows: list[Row]) -> Spread:
    step = _spread(row.step_time_ms_p50 for row in rows)
    assert step is not None  # why_dropped
    return step


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known)) if known else None


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
