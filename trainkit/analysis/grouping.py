"""What was asked of rows: which did the same work, which are repeats of one setting, and what a setting is called.

The *work* is what is trained or called: one model, data, batch size, number of batches to a step and of processes, and
the deadline of a call. A *setting* is everything else that was asked (compile, amp, ddp, optimizer, trainer ...). Rows
of one work and setting are its repeats: processes, not steps; they may differ in the seed.
"""

import re
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from trainkit.config.schema import LISTS
from trainkit.results.row import Row

NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")  # a value that is one, as typed

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


def identity(row: Row) -> Hashable:
    """Equal for the repeats of one setting of one work."""
    return hashable(work(row)), hashable(_setting(row))


def asked(row: Row) -> dict[str, Any]:
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
    of_step = name.partition(".")[0] in ("kind", "model", "data", "world_size")
    asked_for = name in ("trainer.accumulate_grad_batches", "forward.deadline_ms")
    return (of_step or asked_for) and name != "data.num_workers"


def work(row: Row) -> dict[str, Any]:
    """What was asked of the work, by the name a user overrides it with."""
    return {name: value for name, value in asked(row).items() if _is_work(name)}


def _setting(row: Row) -> dict[str, Any]:
    return {name: value for name, value in asked(row).items() if not _is_work(name)}


def beside_compile(row: Row) -> Hashable:
    """What a setting and its baseline have in common."""
    return hashable({k: v for k, v in _setting(row).items() if k not in COMPILE_ONLY and k != "compile.mode"})


def machine(row: Row) -> dict[str, Any]:
    """What a row was measured on and with."""
    return {name: getattr(row, name) for name in MACHINE}


def varying(rows: list[Row]) -> list[str]:
    """The names of what was asked differently, in the order in which a label says them; the mode always is."""
    every = [(row, asked(row)) for row in rows]
    names = dict.fromkeys(FIELDS) | dict.fromkeys(name for _, values in every for name in values)
    answers = {name: {str(values.get(name)) for row, values in every if _applies(name, row)} for name in names}
    apart = {name for name in names if len(answers[name]) > 1} - implied(rows)
    return [name for name in names if name == "compile.mode" or name in apart]


def implied(rows: list[Row]) -> set[str]:
    """What needs no word beside another one: the matmul precision that `amp=...` brings with it, where nobody typed it
    and each precision has one."""
    typed = {_name(override) for row in rows for override in row.overrides}
    brought = {(row.precision, row.matmul_precision) for row in rows}
    one_each = len(brought) == len({precision for precision, _ in brought})
    return {"amp.matmul_precision"} - typed if one_each else set()


def _name(override: str) -> str:
    """The setting that an override sets."""
    return override.lstrip("+").partition("=")[0]


def label(row: Row, varying: list[str]) -> str:
    """What a row's setting is called among rows that differ in these names; a list that is not set has no word."""
    values = asked(row)
    names = [name for name in varying if name in values and (name not in LISTS or values[name] is not None)]
    return ", ".join(words(name, values[name]) for name in names)


def words(name: str, value: Any) -> str:
    """A setting in a label: `dynamic=true`; what needs no name is the value alone."""
    return shortened(f"{name}={said(name, value)}")


def said(name: str, value: Any) -> str:
    """The value of a setting as a user would type it; of `compile.parts` and the like a short form."""
    if name == "compile.parts" and value:
        value = "+".join("/".join(_part(*setting) for setting in part.items()) for part in value)
    if name == "compile.mark_dynamic" and value:
        value = "+".join(f"{dim['input']}.{dim['dim']}[{dim['min']}..{dim['max'] or ''}]" for dim in value)
    if name == "forward.fallback" and value:
        value = " / ".join(value)
    return {None: "null", True: "true", False: "false"}[value] if isinstance(value, bool | None) else str(value)


def _part(name: str, value: Any) -> str:
    return str(value) if name in ("match", "mode") else f"{name}={said(name, value)}"


def shortened(word: str) -> str:
    """An override in a label: `dynamic=true` of `compile.dynamic=true`, `default` of `compile.mode=default`."""
    name, value = word.split("=", 1)
    if name in ("kind", "model", "data", "compile.mode", "amp.precision"):
        return value
    return word.removeprefix("compile.").removeprefix("forward.")


def shared_overrides(rows: list[Row]) -> tuple[str, ...]:
    """The overrides that all rows share, but for those that have their own words in a title or label."""
    elsewhere = {"model", "data", "data.batch_size", "compile.mode", "amp.precision"}
    shared = [override for override in rows[0].overrides if all(override in row.overrides for row in rows)]
    return tuple(as_typed(override) for override in shared if _name(override) not in elsewhere | SILENT - {"seed"})


def as_typed(override: str) -> str:
    """With true and false in the small letters of the command line, which a sweep of Hydra's capitalises."""
    return re.sub("=(True|False)$", lambda found: found[0].lower(), override)


def by(rows: list[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    """Rows by key, both in the order in which they were given."""
    alike: dict[K, list[Row]] = {}
    for row in rows:
        alike.setdefault(key(row), []).append(row)
    return alike


def hashable(values: dict[str, Any]) -> Hashable:
    return tuple(sorted((name, str(value)) for name, value in values.items()))
