"""The settings in `python train.py --help` and the page docs/reference/settings.md, from the facts of each setting."""

from collections.abc import Iterator
from enum import Enum
from textwrap import wrap
from types import NoneType
from typing import Any, get_args, get_origin

from trainkit.config.errors import TYPE_NAMES
from trainkit.config.schema import SETTINGS
from trainkit.config.settings import OWN, Setting, in_groups, typed_value

SECTIONS = {  # in the order of the manual: groups, and settings outside of a group
    "MODEL, DATA AND OBJECTIVE": ("model", "data", "objective"),
    "COMPILE": ("compile",),
    "PRECISION (amp=off, amp=bf16, amp=fp16, amp=bf16_true)": ("amp",),
    "MANY PROCESSES": ("ddp",),
    "TRAINING": ("seed", "ckpt_path", "trainer", "checkpoint", "optimizer"),
    "FORWARD ONLY (scripts/bench.py alone; settings of training are refused there)": ("forward",),
    "MEASURING": ("meters", "check"),
    "SWEEPS (with -m)": ("sweep", "optimized_metric"),
}
INTRODUCTION = (
    "Made by `python scripts/reference.py` from `trainkit/config/schema.py`. A setting without a default has one in "
    "each file of its group, `conf/GROUP/NAME.yaml`; a network or data set may have more there. Rows that differ in a "
    "setting marked *other work* are never compared. Rows that differ in one marked *other settings* are compared. A "
    "setting with neither mark tells no rows apart. `hydra.launcher.*`, of sweeps, is in `--help`."
)
LINE_WIDTH = 120
NAME_COLUMN = 44


def settings_help() -> str:
    """The settings as lines of `--help`, by section. `setting=value` shows the default."""
    lines: list[str] = []
    for title, groups in SECTIONS.items():
        lines += ["", title]
        for setting in _settings_in(groups):
            lines += _help_lines(setting)
    return "\n".join(lines).strip()


def _settings_in(groups: tuple[str, ...]) -> Iterator[Setting]:
    for group in groups:
        for name, setting in SETTINGS.items():
            if in_groups(name, [group]) and not setting.is_group:
                yield setting


def _help_lines(setting: Setting) -> list[str]:
    default = "" if _has_no_default(setting) else f"={typed_value(setting.default)}"
    shown = f"  {setting.name}{default}"
    lines = []
    for line in wrap(_with_choices(setting), LINE_WIDTH - NAME_COLUMN, break_on_hyphens=False):
        lines.append(f"{shown:{NAME_COLUMN}}{line}")
        shown = ""
    return lines


def _has_no_default(setting: Setting) -> bool:
    """Whether each file of the group has a value of its own, or one that follows another setting."""
    return setting.default == OWN or str(setting.default).startswith("${")


def _with_choices(setting: Setting) -> str:
    """The help of a setting, after its choices unless the help names all of them."""
    about = setting.facts.about
    choices = _choices(setting)
    if all(choice in about for choice in choices):
        return about
    return f"{' | '.join(choices)}; {about}"


def _choices(setting: Setting) -> list[str]:
    for kind in _types(setting):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return [member.name for member in kind]
    return []


def _types(setting: Setting) -> tuple[Any, ...]:
    if get_origin(setting.annotation) is list:
        return (list,)
    return get_args(setting.annotation) or (setting.annotation,)


def settings_page() -> str:
    """The text of docs/reference/settings.md."""
    blocks = ["# Settings", INTRODUCTION]
    for title, groups in SECTIONS.items():
        rows = ["| Setting | Default | Expected | Rows that differ | Meaning |", "| --- | --- | --- | --- | --- |"]
        for setting in _settings_in(groups):
            rows.append(_table_row(setting))
        blocks += [f"## {title.capitalize()}", "\n".join(rows)]
    return "\n\n".join(blocks) + "\n"


def _table_row(setting: Setting) -> str:
    default = "" if setting.default == OWN else f"`{typed_value(setting.default)}`"
    meaning = setting.facts.about.replace("*", "\\*")
    cells = [f"`{setting.name}`", default, _expected(setting), _rows_that_differ(setting), meaning]
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _expected(setting: Setting) -> str:
    bounds = [bound.expected for bound in setting.facts.bounds]
    if bounds:
        expected = ", ".join(bounds)
    elif _choices(setting):
        expected = ", ".join(_choices(setting))
    else:
        expected = " or ".join(_type_name(kind) for kind in _types(setting) if kind is not NoneType)
    if NoneType in _types(setting) and "null" not in expected:
        expected += ", or null"
    return expected


def _type_name(kind: Any) -> str:
    if kind in TYPE_NAMES:
        return TYPE_NAMES[kind]
    if kind is str:
        return "text"
    return "a list"


def _rows_that_differ(setting: Setting) -> str:
    if setting.is_work:
        return "other work"
    if setting.facts.silent:
        return ""
    return "other settings"
