"""Config directories and packages of a user's own: `--config-dir DIR` and `hydra.searchpath=[DIR, pkg://PACKAGE]`."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

OPTIONS = ("--config-dir", "-cd")
SETTING = "hydra.searchpath"
PACKAGE = "pkg://"


def typed_search_path(argv: Sequence[str]) -> list[tuple[str, str]]:
    """The entries of a command line, each with the option or setting that it was typed for."""
    entries = []
    for before, word in zip(["", *argv], argv, strict=False):
        name, _, value = word.partition("=")
        if before in OPTIONS:
            entries.append((before, word))
        elif name in OPTIONS and value:
            entries.append((name, value))
        elif name == SETTING:
            entries += [(SETTING, entry) for entry in _listed(word)]
    return entries


def _listed(override: str) -> list[str]:
    """The entries of `hydra.searchpath=[...]`; none if Hydra cannot read it."""
    try:
        value = OverridesParser.create().parse_override(override).value()
    except HydraException:
        return []
    if isinstance(value, list):
        return [str(entry) for entry in value]
    return []


def search_path_override(argv: Sequence[str]) -> list[str]:
    """All entries of a command line as one override; none if there are no entries."""
    quoted = []
    for _, entry in typed_search_path(argv):
        escaped = entry.replace("\\", "\\\\").replace("'", "\\'")
        quoted.append(f"'{escaped}'")
    return [f"{SETTING}=[{','.join(quoted)}]"] if quoted else []


def own_folders(argv: Sequence[str]) -> list[Path]:
    """The folders among the entries of a command line."""
    folders = []
    for _, entry in typed_search_path(argv):
        folder = _folder(entry)
        if folder is not None:
            folders.append(folder)
    return folders


def search_path_complaints(argv: Sequence[str]) -> Iterator[str]:
    """A line for each folder and package that is not there; Hydra only warns of them, or prints a traceback."""
    for setting, entry in typed_search_path(argv):
        if entry.startswith(PACKAGE):
            if not _is_package(entry.removeprefix(PACKAGE)):
                yield f"{setting} = {entry}: no such package; install it, or run in the folder that has it"
            continue
        folder = _folder(entry)
        if folder is not None and not folder.is_dir():
            yield f"{setting} = {entry}: no such folder; give one with a folder for each group, such as model/"


def _folder(entry: str) -> Path | None:
    """The folder that an entry names; None if it names something else."""
    if "://" in entry and not entry.startswith("file://"):
        return None
    return Path(entry.removeprefix("file://"))


def _is_package(name: str) -> bool:
    try:
        return find_spec(name.replace("/", ".")) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False
