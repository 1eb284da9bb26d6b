"""Which rows did the same work, which are repeats of one candidate, and how a candidate is labelled.

The *work* is one training or call: model, data, batch size, batches per step, number of processes, the deadline of a
call. Everything else that was requested (compile, amp, ddp, optimizer, trainer ...) makes the *candidate*. Rows of
one work, one candidate and one schema version are repeats: processes, not steps. They may differ in the seed.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from trainkit.config.schema import LISTS, SETTINGS
from trainkit.config.settings import Setting, in_groups, typed_value
from trainkit.results.row import Row

NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")  # a value as typed

K = TypeVar("K", bound=Hashable)

MACHINE = (
    "device_name",
    "num_devices",
    "torch_version",
    "triton_version",
    "cuda_version",
    "python_version",
    "lightning_version",
    "schema_version",
)
# Settings and groups of them, by the names that a user overrides them with, in the order of a label.
DECLARED = {declared.facts.label or declared.name: declared for declared in SETTINGS.values()}
COMPILE_ONLY = {name for name, declared in DECLARED.items() if declared.facts.compiled_only}
# The number of processes is no setting: it follows from trainer.devices, trainer.num_nodes and torchrun.
STARTED_ONLY = {"world_size"} | {name for name, declared in DECLARED.items() if declared.facts.started_only}
SILENT = {name for name, declared in DECLARED.items() if declared.facts.silent}


def _columns(groups: Iterable[str]) -> dict[str, str]:
    columns = {}
    for name, declared in DECLARED.items():
        facts = declared.facts
        if facts.column is not None and not facts.silent and in_groups(declared.name, groups):
            columns[name] = facts.column
    return columns


# The fields of a row that hold what was requested.
FIELDS = _columns(["job", "model", "data"]) | {"world_size": "world_size"} | _columns(SETTINGS)
OFTEN_UNSET = (*LISTS, "compile.options")
FLOATS: tuple[Any, ...] = (float, float | None)  # annotations
TYPED_NUMBER = re.compile(r"[+-]?(?!0[0-9])[0-9._]+(e[+-]?[0-9]+)?", re.IGNORECASE)  # Hydra takes 007 for a text
LONG = 40  # characters of a value
HELD_WHOLE = ["trainer.kwargs"]  # settings by names of the user's, all of them in one field of a row


def candidate_key(row: Row) -> Hashable:
    """Equal for the repeats of one candidate of one work."""
    return requested_key(row), row.schema_version


def machine_key(row: Row) -> Hashable:
    """Equal for the repeats of one candidate of one work, on machines of one kind with the same versions."""
    return candidate_key(row), hashable(machine_facts(row))


def requested_key(row: Row) -> Hashable:
    """Equal for the rows of one candidate of one work, of whatever schema version."""
    work, settings = _work_and_settings(row)
    return hashable(work), hashable(settings)


def early_key(row: Row) -> Hashable:
    """Equal for the rows of one candidate of one work, and for a row of it that failed before it knew its machine."""
    values = requested(row)
    for name in STARTED_ONLY:
        values.pop(name, None)
    return hashable(values), row.schema_version


def baseline_keys(row: Row) -> list[Hashable]:
    """The keys of the eager candidates that a candidate is compared with: it is the first that was measured. That of an
    eager candidate itself comes first."""
    settings = requested_settings(row)
    for name in COMPILE_ONLY | {"compile.mode", "forward.engine", "ddp.shard_optimizer"}:
        settings.pop(name, None)
    if row.strategy != "compiled":
        return [hashable(settings)]
    # No eager run has this strategy: the eager one has plain DDP, with the same other settings of ddp.* or with none.
    settings["ddp.strategy"] = "ddp" if row.world_size > 1 else "single"
    plain = {}
    for name, value in settings.items():
        if name == "ddp.strategy" or not name.startswith("ddp."):
            plain[name] = value
    return [hashable(settings), hashable(plain)]


def group_key(row: Row) -> Hashable:
    """Equal for rows that did the same work on the same machine, of one schema version."""
    return hashable(requested_work(row)), hashable(machine_facts(row))


def requested(row: Row) -> dict[str, Any]:
    """Everything requested of a run that can change its figures, by the name that a user overrides it with."""
    values = {}
    for name, field in FIELDS.items():
        if _applies(name, row):
            values[name] = getattr(row, field)
    if row.schema_version < 2:  # its rows have no such field
        values.pop("amp.matmul_precision", None)
    for name, value in _other_overrides(row).items():
        if _applies(name, row):
            values[name] = value
    return values


def requested_work(row: Row) -> dict[str, Any]:
    """The part of `requested` that is the work."""
    work, _ = _work_and_settings(row)
    return work


def requested_settings(row: Row) -> dict[str, Any]:
    """The part of `requested` that is not the work."""
    _, settings = _work_and_settings(row)
    return settings


def machine_facts(row: Row) -> dict[str, Any]:
    """The devices that a row was measured on, and the versions it was measured with, the schema's among them."""
    return {name: getattr(row, name) for name in MACHINE}


def varying_names(rows: Sequence[Row]) -> list[str]:
    """The names of the settings that differ, in the order of a label; the mode is always among them."""
    all_requested = [requested(row) for row in rows]
    names = dict.fromkeys(FIELDS)
    for values in all_requested:
        names |= dict.fromkeys(values)
    distinct: dict[str, set[str]] = defaultdict(set)
    for row, values in zip(rows, all_requested, strict=True):
        for name in names:
            if _applies(name, row):
                distinct[name].add(str(values.get(name)))
    implied = implied_names(rows)
    varying = []
    for name in names:
        differs = len(distinct[name]) > 1 and name not in implied
        if differs or name == "compile.mode":
            varying.append(name)
    return varying


def implied_names(rows: Sequence[Row]) -> set[str]:
    """The names that need no label: the matmul precision that `amp=...` sets along with the precision, if nobody typed
    it and each precision has one."""
    implied = {"amp.matmul_precision"}
    precisions, combinations = set(), set()
    for row in rows:
        precisions.add(row.precision)
        combinations.add((row.precision, row.matmul_precision))
        for override in row.overrides:
            implied.discard(override_name(override))
    if len(combinations) > len(precisions):
        return set()
    return implied


def long_values(rows: Sequence[Row], varying: Iterable[str]) -> dict[str, str]:
    """The long values, by name, that are the only ones of their lists and options beside none: in a label their names
    are enough."""
    long = {}
    for name in varying:
        if name not in OFTEN_UNSET:
            continue
        texts = {value_text(name, value) for value in (requested(row).get(name) for row in rows) if value}
        if len(texts) == 1:
            (text,) = texts
            if len(text) > LONG:
                long[name] = text
    return long


def label(row: Row, varying: Iterable[str], long: Collection[str] = ()) -> str:
    """The label of a row's candidate among rows that differ in these names; unset lists and options are left out, and
    the values of `long`."""
    values = requested(row)
    parts = []
    for name in varying:
        is_left_out = values.get(name) is None and name in OFTEN_UNSET
        if name not in values or is_left_out:
            continue
        if name in long:
            parts.append(short_name(name))
        else:
            parts.append(short_override(f"{name}={value_text(name, values[name])}"))
    return ", ".join(parts)


def shared_overrides(rows: Sequence[Row]) -> tuple[str, ...]:
    """The overrides that all rows share, except those that a title or label shows anyway."""
    shown = {"model", "data", "data.batch_size", "compile.mode", "amp.precision"} | SILENT - {"seed"}
    shared = []
    for override in rows[0].overrides:
        if override_name(override) not in shown and all(_has_override(row, override) for row in rows):
            shared.append(as_typed(override))
    return tuple(shared)


def _has_override(row: Row, override: str) -> bool:
    """Whether an override of the row sets the same value, however it is typed."""
    name, _, value = override.lstrip("+").partition("=")
    for other in row.overrides:
        other_name, _, other_value = other.lstrip("+").partition("=")
        if other_name == name and one_spelling(name, other_value) == one_spelling(name, value):
            return True
    return False


def one_spelling(name: str, value: str) -> str:
    """The typed value of a setting, a number as Python prints it: `0.1` for `1e-1`, and of a float `1` for `1.0`."""
    declared = DECLARED.get(name)
    if not TYPED_NUMBER.fullmatch(value) or (declared is not None and declared.annotation is str):
        return value
    for number_type in (int, float):
        try:
            text = str(number_type(value))
        except ValueError:
            continue
        if declared is not None and declared.annotation in FLOATS:
            return text.removesuffix(".0")
        return text  # 1 batch is not the fraction 1.0 of all
    return value


def override_name(override: str) -> str:
    """The setting that an override sets."""
    return override.lstrip("+").partition("=")[0]


def are_numbers(name: str, values: Iterable[str]) -> bool:
    """Whether these values of a setting or of a fact are numbers to go along; a version is none, nor is the number of
    jobs side by side."""
    return name not in (*MACHINE, "parallel_jobs") and all(map(NUMBER.fullmatch, values))


def short_override(override: str) -> str:
    """An override in a label: `dynamic=true` for `compile.dynamic=true`, `default` for `compile.mode=default`."""
    name, value = override.split("=", 1)
    if name in ("kind", "model", "data", "compile.mode", "amp.precision"):
        return value
    return f"{short_name(name)}={value}"


def short_name(name: str) -> str:
    return name.removeprefix("compile.").removeprefix("forward.")


def as_typed(override: str) -> str:
    """An override with true and false in lower case: Hydra's sweeps capitalise them."""
    return re.sub("=(True|False)$", lambda match: match[0].lower(), override)


def value_text(name: str, value: Any) -> str:
    """The value of a setting as a user would type it; a list setting in a short form."""
    if not value:
        return typed_value(value)
    if name == "compile.parts":
        return "+".join(_region_text(region) for region in value)
    if name == "compile.mark_dynamic":
        return "+".join(_dynamic_shape_text(dim) for dim in value)
    if name == "callbacks":
        return "+".join(target.rpartition(".")[2] for target in value)
    if name in ("compile.options", "trainer.kwargs"):
        return "+".join(f"{option}={typed_value(setting)}" for option, setting in value.items())
    if name == "forward.fallback":
        return " / ".join(value)
    return one_spelling(name, typed_value(value))


def group_by(rows: Iterable[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    """Rows by key, both in the order of the rows."""
    groups: dict[K, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def hashable(values: Mapping[str, Any]) -> Hashable:
    return tuple(sorted((name, str(value)) for name, value in values.items()))


def _work_and_settings(row: Row) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two parts of `requested`."""
    work, settings = {}, {}
    for name, value in requested(row).items():
        if _is_work(name):
            work[name] = value
        else:
            settings[name] = value
    return work, settings


def _other_overrides(row: Row) -> dict[str, str]:
    """The overrides, by name, that no field of a row holds and that can change its figures."""
    values = []
    for override in row.overrides:
        other = _other_override(override)
        if other is not None:
            values.append(other)
    return dict(sorted(values))


@functools.cache
def _other_override(override: str) -> tuple[str, str] | None:
    """Name and value of an override; None if a field of a row holds it, or it can change no figure.

    Cached, for the rows of a sweep have the same few."""
    name, _, value = as_typed(override.lstrip("+")).partition("=")
    if name in FIELDS or in_groups(name, HELD_WHOLE) or _is_silent(name):
        return None
    return name, one_spelling(name, value)


def _applies(name: str, row: Row) -> bool:
    """Whether a setting has an effect on a run, and its row knows the value."""
    if name in COMPILE_ONLY:
        return row.compile_mode != "eager"
    return row.device_name is not None or name not in STARTED_ONLY


@functools.cache
def _is_work(name: str) -> bool:
    declared = _declared(name)
    return name == "world_size" or (declared is not None and declared.is_work)


def _is_silent(name: str) -> bool:
    declared = _declared(name)
    return declared is not None and declared.facts.silent


def _declared(name: str) -> Setting | None:
    """The setting of this name; for an argument of a class its group."""
    return DECLARED.get(name) or DECLARED.get(name.partition(".")[0])


def _dynamic_shape_text(dim: Mapping[str, Any]) -> str:
    return f"{dim['input']}.{dim['dim']}[{dim['min']}..{dim['max'] or ''}]"


def _region_text(region: Mapping[str, Any]) -> str:
    parts = []
    for name, value in region.items():
        if name in ("match", "mode"):
            parts.append(str(value))
        else:
            parts.append(f"{name}={value_text(name, value)}")
    return "/".join(parts)
