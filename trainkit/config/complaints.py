"""One line for each override that cannot be composed: `setting = value: problem; way out`."""

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_type_hints

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from trainkit.config import schema
from trainkit.config.composition import compose_config
from trainkit.config.errors import TYPE_NAMES, ConfigError
from trainkit.config.schema import LISTS, RunConfig
from trainkit.config.settings import in_groups

UNREADABLE = (HydraException, OmegaConfBaseException, ValueError)  # Hydra raises a bare ValueError for `model=null`


def compose_typed(overrides: list[str], conf: Path, run_dir: str = "", name: str = "config") -> RunConfig:
    """Compose overrides that a user typed. Raises ConfigError with one line for each mistake."""
    try:
        return compose_config(overrides, conf, run_dir, name)
    except ConfigError:
        raise
    except UNREADABLE as error:
        lines = complaints(overrides, conf, name) or [" ".join(str(error).split())]
        raise ConfigError(*lines) from error


def complaints(argv: list[str], conf: Path, name: str = "config", sweeps: bool = False) -> list[str]:
    """One line for every override that does not compose with those before it, group choices first, and one for
    everything else that cannot be run. An override has one value, unless the command line `sweeps`."""
    GlobalHydra.instance().clear()
    lines: list[str] = []
    accepted: list[str] = []
    networks: list[str] = []  # the choices of `model`, if it is swept
    for override in sorted(typed_overrides(argv), key=lambda typed: not _chooses_in_group(typed, conf)):
        try:
            single_values = list(_single_values(override))
        except HydraException:
            way_out = "write group=name or setting=value, and quote what has commas, spaces or ="
            lines.append(f"{override}: cannot be read; {way_out}")
            continue
        if override.startswith("model="):
            networks = single_values
        complaint = _complaint(single_values, networks, accepted, conf, name)
        if complaint is not None:
            lines.append(complaint)
            continue
        accepted.append(single_values[-1])
        if single_values != [override] and not sweeps:
            setting, _, values = override.partition("=")
            way_out = f"several are a list, [{values}], or a sweep, with -m"
            lines.append(f"{setting} = {values}: expected one value; {way_out}")
    try:
        compose_config(accepted, conf, name=name)
    except ConfigError as error:
        subjects = {line.split(" ")[0] for line in lines}  # what they lack for that is no further mistake
        for complaint in error.complaints:
            if complaint.split(" ")[0] not in subjects:
                lines.append(complaint)
    except (HydraException, OmegaConfBaseException):
        pass  # a line above is about the override that brought it in
    return lines


def typed_overrides(argv: list[str]) -> Iterator[str]:
    """The overrides of a command line: neither options nor an option's value."""
    for before, word in zip(["", *argv], argv, strict=False):
        is_value = before.startswith("-") and before not in ("-m", "--multirun")
        if not word.startswith("-") and ("=" in word or not is_value):
            yield word


def _chooses_in_group(override: str, conf: Path) -> bool:
    return (conf / override.split("=")[0].lstrip("+~")).is_dir()


def _single_values(override: str) -> Iterator[str]:
    """The override itself, or an override for each value of a sweep (`a=1,2`)."""
    parsed = OverridesParser.create().parse_override(override)
    if not parsed.is_sweep_override():
        yield override
        return
    for value in parsed.sweep_string_iterator():
        yield f"{parsed.get_key_element()}={value}"


@dataclass(frozen=True)
class Refused:
    """An override that does not compose with `accepted` ones, and the text of the error and of its cause."""

    override: str
    error: str
    accepted: list[str]
    conf: Path

    @property
    def setting(self) -> str:
        return self.override.lstrip("+~").partition("=")[0]

    @property
    def value(self) -> str:
        return self.override.partition("=")[2]

    @property
    def subject(self) -> str:
        return f"{self.setting} = {self.value}" if self.value else self.override


def _first_refused(overrides: list[str], accepted: list[str], conf: Path, name: str) -> Refused | None:
    for override in overrides:
        try:
            with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
                compose(name, [*accepted, override])
        except UNREADABLE as error:
            return Refused(override, f"{error}\n{error.__cause__ or ''}", accepted, conf)
    return None


def _complaint(overrides: list[str], networks: list[str], accepted: list[str], conf: Path, name: str) -> str | None:
    """The line about an override, of which there is one for each value of a sweep; None if it composes."""
    of_some = _of_some_networks(overrides, networks, accepted, conf, name)
    if of_some is not None:
        return of_some
    refused = _first_refused(overrides, accepted, conf, name)
    return None if refused is None else explain(refused)


def _of_some_networks(
    overrides: list[str], networks: list[str], accepted: list[str], conf: Path, name: str
) -> str | None:
    """The problem of a setting that some of the networks of a sweep have, and others lack."""
    if not overrides[0].startswith("model."):
        return None
    lacking = []
    for network in networks:
        if _first_refused(overrides, [*accepted, network], conf, name) is not None:
            lacking.append(network.removeprefix("model="))
    if len(lacking) in (0, len(networks)):
        return None
    setting, _, value = overrides[0].partition("=")
    return f"{setting} = {value}: no setting of {', '.join(lacking)}; ++{setting} sets it for the others alone"


def explain(refused: Refused) -> str:
    """The problem of an override, in one line."""
    for pattern, problem_of in PROBLEMS:
        match = re.search(pattern, refused.error, re.DOTALL)
        problem = problem_of(refused, match) if match else None
        if problem is not None:
            return f"{refused.subject}: {problem}"
    return f"{refused.subject}: {' '.join(refused.error.split())}"


def _no_choice(refused: Refused, match: re.Match[str]) -> str:
    return f"expected one of {match[1]}"


def _no_file_of_group(refused: Refused, match: re.Match[str]) -> str:
    """The files in the folder that was typed; without one, the files and folders of the group."""
    group = refused.conf / refused.setting
    folder = refused.value.rpartition("/")[0]
    if folder:
        choices = [f"{folder}/{path.stem}" for path in sorted((group / folder).glob("*.yaml"))]
        if choices:
            return f"expected one of {', '.join(choices)}"
    folders = [f"{path.name}/..." for path in sorted(group.glob("*")) if path.is_dir()]
    return f"expected one of {', '.join(match[1].split() + folders)}"


def _no_number(refused: Refused, match: re.Match[str]) -> str:
    names = {"Integer": TYPE_NAMES[int], "Float": TYPE_NAMES[float], "Boolean": TYPE_NAMES[bool]}
    return f"expected {names.get(match[1], match[1])}"


def _no_boolean(refused: Refused, match: re.Match[str]) -> str:
    field_type = get_type_hints(getattr(schema, match[2]))[match[1]]
    if field_type == bool | None:
        return "expected true, false or null"
    return f"expected {TYPE_NAMES[bool]}"


def _null(refused: Refused, match: re.Match[str]) -> str:
    return "expected a value; null is not one of its values"


def _no_text(refused: Refused, match: re.Match[str]) -> str:
    if refused.setting in LISTS:
        return f"expected text; {_entries(refused)}"
    return "expected text"


def _another_type(refused: Refused, match: re.Match[str]) -> str:
    return f"expected {match[1]}"


def _unknown_entry(refused: Refused, match: re.Match[str]) -> str | None:
    if match[1] in refused.setting.split("."):
        return None
    return f"no such setting: {match[1]}; see python train.py --help"


def _no_list(refused: Refused, match: re.Match[str]) -> str:
    if refused.setting in LISTS:
        return f"expected {_entries(refused)}"
    return "expected a list"


def _entries(refused: Refused) -> str:
    return f"entries as in {refused.setting}=[{LISTS[refused.setting]}]"


def _unknown_setting(refused: Refused, match: re.Match[str]) -> str:
    if in_groups(refused.setting, ["compile.options"]):
        return f"an option of torch is added, with +{refused.setting}"
    with initialize_config_dir(str(refused.conf.resolve()), version_base="1.3"):
        names = list(_setting_names(compose("config", refused.accepted)))
    near = difflib.get_close_matches(refused.setting, names, 1)
    if not near:
        return "no such setting; see python train.py --help"
    return f"no such setting; did you mean {near[0]}?"


def _setting_names(node: DictConfig, prefix: str = "") -> Iterator[str]:
    """The dotted names of all settings of a config, and of its groups."""
    for key in node:
        yield f"{prefix}{key!s}"
        child = node._get_node(key)
        if isinstance(child, DictConfig):
            yield from _setting_names(child, f"{prefix}{key!s}.")


# Patterns in errors of Hydra and OmegaConf, and the problem in our words. The first pattern with a problem holds.
PROBLEMS: tuple[tuple[str, Callable[[Refused, re.Match[str]], str | None]], ...] = (
    (r"expected one of \[([^\n]*)\]", _no_choice),
    (r"Available options in [^\n]*:\n((?:\t[^\n]*\n)+)", _no_file_of_group),
    (r"could not be converted to (\w+)", _no_number),
    (r"is not a valid bool.*full_key: (?:\S+\.)?(\w+).*object_type=(\w+)", _no_boolean),
    (r"is not Optional", _null),
    (r"to string: |Incompatible value 'None' for field of type 'str'", _no_text),
    (r"incompatible with type hint '([^\n]*)'", _another_type),
    (r"Key '(\w+)' not in '\w+'", _unknown_entry),
    (r"is not a ListConfig|with ListConfig|is not a subclass of", _no_list),
    (r"not in struct|No match in the defaults list|Key '[^\n]*' not in ", _unknown_setting),
)
