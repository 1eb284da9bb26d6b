"""What of a network is compiled: the parts that patterns match, or its repeated blocks."""

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import FunctionType
from typing import Any

from torch import nn

from trainkit.config.errors import ConfigError
from trainkit.config.schema import CompileConfig, PartConfig

# What activation checkpointing puts between a block and its name; checkpoint keys and patterns are without it.
WRAPPER = "_checkpoint_wrapped_module"
NOT_THE_NETWORKS = sys.stdlib_module_names | {"torch"}  # packages whose functions others call too


@dataclass(frozen=True)
class Part:
    """A module, or a function by its dotted name, and how to compile it. Mode eager: it is left out, also of a part
    that it lies in. `place` is the object whose attribute `attribute` is the function."""

    name: str
    asked: PartConfig
    module: nn.Module | None = None
    place: Any = None
    attribute: str = ""

    @property
    def function(self) -> Any:
        return getattr(self.place, self.attribute)


def unwrapped(module: nn.Module) -> nn.Module:
    """What activation checkpointing has wrapped; any other module itself."""
    return getattr(module, WRAPPER, module)


def blocks(net: nn.Module) -> dict[str, nn.Module]:
    """The blocks of a network by name: of its children, and of the entries of those that are ModuleLists or
    Sequentials, those with layers of their own; children only where another one is of the same class. Where there are
    none, the blocks of its children, as of `transformer` in Hugging Face's GPT-2."""
    children = dict(net.named_children())
    repeats = Counter(type(unwrapped(child)) for child in children.values())
    found: dict[str, nn.Module] = {}
    for name, child in children.items():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            entries = {f"{name}.{entry}": block for entry, block in child.named_children()}
        else:
            entries = {name: child} if repeats[type(unwrapped(child))] > 1 else {}
        found |= {where: block for where, block in entries.items() if any(unwrapped(block).children())}
    if found:
        return found
    return {f"{name}.{entry}": block for name, child in children.items() for entry, block in blocks(child).items()}


def parts(config: CompileConfig, net: nn.Module) -> list[Part]:
    """What `compile.scope` (parts or blocks) asks of `net`, in the order of its modules, functions last.

    The name of a module is that in `net`; `*`, `?` and `[...]` of a pattern stand for characters between two dots. Of
    several patterns that match it the last one holds. A pattern that matches no module may name a function of an
    installed Python module, but torch and the standard library. ConfigError with one line for each pattern that matches
    nothing, or what cannot be called, and for a part that lies in another one.
    """
    return _blocks(config, net) if config.scope.value == "blocks" else _matched(config, net)


def _blocks(config: CompileConfig, net: nn.Module) -> list[Part]:
    """Of a network's blocks those whose class repeats."""
    found = blocks(net)
    repeats = Counter(type(unwrapped(block)) for block in found.values())
    asked = PartConfig("", config.mode, config.dynamic, config.fullgraph, config.backend)
    chosen = [Part(name, asked, block) for name, block in found.items() if repeats[type(unwrapped(block))] > 1]
    if not chosen:
        raise ConfigError(
            f"compile.scope = blocks: {type(net).__name__} has no repeated blocks (several modules of one "
            "class, with layers of their own); use compile.scope=parts, net or step"
        )
    return chosen


def _matched(config: CompileConfig, net: nn.Module) -> list[Part]:
    modules = dict(_named(net))
    found: dict[str, Part] = {}
    complaints = []
    for asked in config.parts:
        names = [name for name in modules if _matches(name, asked.match)]
        if not names and (function := _function(asked)) is not None:
            found[asked.match] = function
            if (package := asked.match.partition(".")[0]) in NOT_THE_NETWORKS:
                complaints.append(
                    f"compile.parts = {asked.match}: is of {package}, and would be replaced for all of the process; "
                    "name a function of the network's own that calls it"
                )
        elif not names:
            complaints.append(_nothing(asked.match, net, list(modules)))
        for name in names:
            if type(modules[name]).forward is nn.Module.forward:
                complaints.append(
                    f"compile.parts = {asked.match}: {name} is a {type(modules[name]).__name__}, which is never "
                    f"called; match its entries, {name}.*"
                )
            found[name] = Part(name, asked, modules[name])
    if complaints := [*complaints, *_nested(found)]:
        raise ConfigError(*complaints)
    chosen = [found[name] for name in (*modules, *(name for name in found if name not in modules)) if name in found]
    if config.mode.value != "eager" and all(part.asked.mode.value == "eager" for part in chosen):
        raise ConfigError("compile.parts: all are left out and nothing would be compiled; use compile.mode=eager")
    return chosen


def _named(net: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules within a network by name, each once; checkpointing's wrapper in place of what it wraps."""
    for name, module in net.named_modules():
        if name and not name.endswith(WRAPPER):
            yield name.replace(f"{WRAPPER}.", ""), module


def _matches(name: str, pattern: str) -> bool:
    words, globs = name.split("."), pattern.split(".")
    return len(words) == len(globs) and all(map(fnmatchcase, words, globs))


def _function(asked: PartConfig) -> Part | None:
    """The function of a dotted name; None where there is none of that name, or it is no function of Python's."""
    place, _, attribute = asked.match.rpartition(".")
    try:
        owner = importlib.import_module(place)
    except (ImportError, TypeError, ValueError):  # the second for a name that starts with dots
        return None
    if not isinstance(getattr(owner, attribute, None), FunctionType):
        return None
    return Part(asked.match, asked, place=owner, attribute=attribute)


def _nothing(pattern: str, net: nn.Module, names: list[str]) -> str:
    top = [name for name in names if "." not in name]
    return (
        f"compile.parts = {pattern}: matches no module of {type(net).__name__} and names no function; it has "
        f"{', '.join(top) or 'no modules'} (and what is in them, as in {top[0] if top else 'blocks'}.*)"
    )


def _nested(found: dict[str, Part]) -> Iterator[str]:
    """A complaint for each part that is compiled within another one, which takes it into its own graph."""
    compiled = [name for name, part in found.items() if part.module is not None and part.asked.mode.value != "eager"]
    for name in compiled:
        outer = next((other for other in compiled if name.startswith(f"{other}.")), None)
        if outer is not None:
            yield (
                f"compile.parts = {found[name].asked.match}: {name} lies in {outer}, which is compiled as one; "
                "leave one of them out"
            )
