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
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from trainkit.config import schema
from trainkit.config.composition import compose_config
from trainkit.config.errors import TYPE_NAMES, ConfigError, refuse
from trainkit.config.open_groups import SHARED_DATA_SETTINGS
from trainkit.config.other_names import OTHER_NAMES, PLUGINS
from trainkit.config.schema import LISTS, RunConfig
from trainkit.config.search_path import SETTING as SEARCH_PATH
from trainkit.config.search_path import own_folders, search_path_complaints, search_path_override
from trainkit.config.secrets import secret_complaints
from trainkit.config.settings import in_groups

# Hydra raises bare errors of Python too: ValueError for `model=null`, TypeError for `model=[-1]`.
UNREADABLE = (HydraException, OmegaConfBaseException, ValueError, TypeError, AttributeError, AssertionError)


@dataclass(frozen=True)
class Configs:
    """The files that overrides choose from: conf/<name>.yaml, and the folders that have groups."""

    conf: Path
    name: str
    folders: list[Path]

    def compose(self, overrides: list[str]) -> DictConfig:
        """Compose without checks."""
        with initialize_config_dir(str(self.conf.resolve()), version_base="1.3"):
            return compose(self.name, overrides)

    def has_group(self, name: str) -> bool:
        return any((folder / name).is_dir() for folder in self.folders)


def compose_typed(argv: list[str], conf: Path, run_dir: str | None = None, name: str = "config") -> RunConfig:
    """Compose overrides that a user typed, `--config-dir DIR` among them. Raises ConfigError with one line for each
    mistake."""
    refuse(secret_complaints(list(typed_overrides(argv))))
    refuse(search_path_complaints(argv))
    try:
        return compose_config([*search_path_override(argv), *_overrides_of_settings(argv)], conf, run_dir, name)
    except ConfigError:
        raise
    except UNREADABLE as error:
        lines = complaints(argv, conf, name) or [" ".join(str(error).split())]
        raise ConfigError(*lines) from error


def complaints(argv: list[str], conf: Path, name: str = "config", sweeps: bool = False) -> list[str]:
    """One line for every override that does not compose with those before it, group choices first, and one for
    everything else that cannot be run. An override has one value, unless the command line `sweeps`."""
    GlobalHydra.instance().clear()
    configs = Configs(conf, name, [*own_folders(argv), conf])
    lines: list[str] = []
    accepted = search_path_override(argv)
    networks: list[str] = []  # the choices of `model`, if it is swept
    for override in sorted(_overrides_of_settings(argv), key=lambda typed: not _chooses_in_group(typed, configs)):
        try:
            single_values = list(_single_values(override))
        except (HydraException, ValueError):  # Python's own, about thousands of digits
            way_out = "write group=name or setting=value, and quote what has commas, spaces or ="
            lines.append(f"{override}: cannot be read; {way_out}")
            continue
        if override.startswith("model="):
            networks = single_values
        complaint = _complaint(single_values, networks, accepted, configs)
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


def _overrides_of_settings(argv: list[str]) -> list[str]:
    """The overrides of a command line but for its config directories."""
    return [override for override in typed_overrides(argv) if not override.startswith(f"{SEARCH_PATH}=")]


def typed_overrides(argv: list[str]) -> Iterator[str]:
    """The overrides of a command line: neither options nor an option's value."""
    for before, word in zip(["", *argv], argv, strict=False):
        is_value = before.startswith("-") and before not in ("-m", "--multirun")
        if not word.startswith("-") and ("=" in word or not is_value):
            yield word


def _chooses_in_group(override: str, configs: Configs) -> bool:
    return configs.has_group(override.split("=")[0].lstrip("+~"))


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
    configs: Configs

    @property
    def setting(self) -> str:
        return self.override.lstrip("+~").partition("=")[0]

    @property
    def value(self) -> str:
        return self.override.partition("=")[2]

    @property
    def subject(self) -> str:
        return f"{self.setting} = {self.value}" if self.value else self.override


def _first_refused(overrides: list[str], accepted: list[str], configs: Configs) -> Refused | None:
    for override in overrides:
        try:
            configs.compose([*accepted, override])
        except UNREADABLE as error:
            return Refused(override, f"{error}\n{error.__cause__ or ''}", accepted, configs)
    return None


def _complaint(overrides: list[str], networks: list[str], accepted: list[str], configs: Configs) -> str | None:
    """The line about an override, of which there is one for each value of a sweep; None if it composes."""
    of_some = _of_some_networks(overrides, networks, accepted, configs)
    if of_some is not None:
        return of_some
    refused = _first_refused(overrides, accepted, configs)
    return None if refused is None else explain(refused)


def _of_some_networks(overrides: list[str], networks: list[str], accepted: list[str], configs: Configs) -> str | None:
    """The problem of a setting that some of the networks of a sweep have, and others lack."""
    if not overrides[0].startswith("model."):
        return None
    lacking = []
    for network in networks:
        if _first_refused(overrides, [*accepted, network], configs) is not None:
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
    groups = [path / refused.setting for path in refused.configs.folders]
    folder = refused.value.rpartition("/")[0]
    if folder:
        choices = [f"{folder}/{path.stem}" for path in _listed(groups, f"{folder}/*.yaml")]
        if choices:
            return f"expected one of {', '.join(choices)}"
    package = PLUGINS.get(f"{refused.setting}={refused.value}")
    if package is not None:
        return f"is not installed; pip install {package}"
    if "." in refused.value and "own" in match[1].split():
        group = refused.setting
        return f"no file of conf/{group}; a class of yours is given as {group}=own {group}._target_={refused.value}"
    folders = [f"{path.name}/..." for path in _listed(groups, "*") if path.is_dir()]
    return f"expected one of {', '.join(match[1].split() + folders)}"


def _listed(folders: list[Path], pattern: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.glob(pattern))


def _no_number(refused: Refused, match: re.Match[str]) -> str:
    names = {"Integer": TYPE_NAMES[int], "Float": TYPE_NAMES[float], "Boolean": TYPE_NAMES[bool]}
    return f"expected {names.get(match[1], match[1])}"


def _no_boolean(refused: Refused, match: re.Match[str]) -> str:
    node = getattr(schema, match[2], None)  # None: a node of Hydra's own
    if node is not None and get_type_hints(node)[match[1]] == bool | None:
        return "expected true, false or null"
    return f"expected {TYPE_NAMES[bool]}"


def _no_name(refused: Refused, match: re.Match[str]) -> str:
    return f"expected one name; see the files of conf/{refused.setting}"


def _null(refused: Refused, match: re.Match[str]) -> str:
    return "expected a value; null is not one of its values"


def _no_text(refused: Refused, match: re.Match[str]) -> str:
    if refused.setting in LISTS:
        return f"expected text; {_entries(refused)}"
    return "expected text"


def _another_type(refused: Refused, match: re.Match[str]) -> str:
    return f"expected {match[1]}"


def _is_there(refused: Refused, match: re.Match[str]) -> str:
    return f"is a setting already; leave out the +, or use ++{refused.setting}"


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
    parent, _, name = refused.setting.rpartition(".")
    is_own = any(choice == f"{parent}=own" or choice.startswith(f"{parent}._target_=") for choice in refused.accepted)
    if is_own and name not in OTHER_NAMES:
        return f"an argument of a class of yours is added, with +{refused.override}"
    names = list(_setting_names(refused.configs.compose(refused.accepted)))
    choices = _choices_with(refused, names)
    if choices:
        way_out = "choose that too" if len(choices) == 1 else "choose one of them"
        return f"a setting of {refused.setting.partition('.')[0]}={', '.join(choices)}; {way_out}"
    meant = _setting_meant(refused.setting, names)
    if meant is None:
        return "no such setting; see python train.py --help"
    return f"no such setting; did you mean {meant}?"


def _choices_with(refused: Refused, names: list[str]) -> list[str]:
    """The choices of a group that have the setting that was typed: of `data`, `dataset`. Empty if it is among `names`,
    those of the present choice."""
    group, _, setting = refused.setting.partition(".")
    key = setting.partition(".")[0]
    if f"{group}.{key}" in names:
        return []
    choices = []
    for path in _listed([folder / group for folder in refused.configs.folders], "*.yaml"):
        if key in _keys_of(path):
            choices.append(path.stem)
    return choices


def _keys_of(path: Path) -> set[str]:
    """The keys of a file of a group, and of what its defaults list names."""
    config = OmegaConf.load(path)
    if not isinstance(config, DictConfig):
        return set()
    keys = {str(key) for key in config if key != "defaults"}
    for default in config.get("defaults", []):
        name = str(default).partition("@")[0]  # `/loaded_data@_here_`, or another file of the group
        keys.update(SHARED_DATA_SETTINGS.get(name.removeprefix("/"), ()))
        other = path.parent / f"{name}.yaml"
        if other.is_file():
            keys |= _keys_of(other)
    return keys


def _setting_meant(typed: str, names: list[str]) -> str | None:
    """The setting of `names` that someone means who types Lightning's or another tool's name, leaves out the group, or
    mistypes it; None if there is none."""
    last = typed.rpartition(".")[2]
    elsewhere = OTHER_NAMES.get(last)
    if elsewhere in names:
        return elsewhere
    near = difflib.get_close_matches(typed, names, 1)
    in_a_group = [name for name in names if name.rpartition(".")[2] == last]
    if len(in_a_group) == 1:
        return in_a_group[0]
    return near[0] if near else None


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
    (r"An item is already at", _is_there),
    (r"^argument of type '\w+' is not iterable|^expected string", _no_name),
    (r"is not a ListConfig|with ListConfig|is not a subclass of", _no_list),
    (r"not in struct|No match in the defaults list|Key '[^\n]*' not in ", _unknown_setting),
)
