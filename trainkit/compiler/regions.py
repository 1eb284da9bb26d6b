"""Which regions of a network are compiled: the modules and functions that patterns match, or its repeated blocks."""

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from trainkit.compiler.dynamo import CHECKPOINTED
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.schema import CompileConfig, PartConfig

SHARED_PACKAGES = sys.stdlib_module_names | {"torch"}  # their functions are called by others than the network


@dataclass(frozen=True)
class Target:
    """A module, or a function by its dotted name, and how to compile it. With mode eager it runs uncompiled, also
    inside of another region. A function is an attribute of its `owner`."""

    name: str
    config: PartConfig
    module: nn.Module | None = None
    owner: Any = None
    attribute: str = ""

    @property
    def function(self) -> Any:
        return getattr(self.owner, self.attribute)

    @property
    def compiles(self) -> bool:
        return self.config.mode != "eager"


@dataclass
class CompiledRegion:
    """A target that is compiled by itself, and its counts so far. `num_graphs` were compiled in its calls, None
    if this torch does not report them. Regions with the same `code` share their graphs."""

    target: Target
    num_graphs: int | None = 0
    num_calls: int = 0
    code: CodeType | None = None


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside of activation checkpointing's wrapper; any other module itself."""
    inner: nn.Module = getattr(module, CHECKPOINTED, module)
    return inner


def blocks(net: nn.Module) -> dict[str, nn.Module]:
    """The blocks of a network by name.

    A block is a module with layers of its own: an entry of a ModuleList or Sequential among the network's children, or
    a child whose class occurs several times. A network without blocks has those of its children, as of `transformer`
    in Hugging Face's GPT-2.
    """
    children = dict(net.named_children())
    repeats = Counter(type(unwrapped(child)) for child in children.values())
    blocks_by_name = {}
    for name, child in children.items():
        candidates = {}
        if isinstance(child, nn.ModuleList | nn.Sequential):
            candidates = {f"{name}.{entry}": module for entry, module in child.named_children()}
        elif repeats[type(unwrapped(child))] > 1:
            candidates = {name: child}
        for candidate_name, candidate in candidates.items():
            if any(unwrapped(candidate).children()):
                blocks_by_name[candidate_name] = candidate
    return blocks_by_name or _blocks_of_children(children)


def _blocks_of_children(children: dict[str, nn.Module]) -> dict[str, nn.Module]:
    blocks_by_name = {}
    for name, child in children.items():
        for inner_name, block in blocks(child).items():
            blocks_by_name[f"{name}.{inner_name}"] = block
    return blocks_by_name


def select_targets(config: CompileConfig, net: nn.Module) -> list[Target]:
    """The targets that `compile.scope` (parts or blocks) selects in a network, in the order of its modules, functions
    last.

    A pattern matches the names of modules in `net`; `*`, `?` and `[...]` stand for characters between two dots. The
    last pattern that matches a module holds for it. A pattern that matches no module may name a function of an
    installed Python module, except torch and the standard library. Raises ConfigError with a line for each pattern
    that matches nothing or a module that is never called, and for each region inside of another one.
    """
    if config.scope == "blocks":
        return _repeated_blocks(config, net)
    return _matches(config, net)


def _repeated_blocks(config: CompileConfig, net: nn.Module) -> list[Target]:
    blocks_by_name = blocks(net)
    repeats = Counter(type(unwrapped(block)) for block in blocks_by_name.values())
    block_config = PartConfig("", config.mode, config.dynamic, config.fullgraph, config.backend, config.options)
    targets = []
    for name, block in blocks_by_name.items():
        if repeats[type(unwrapped(block))] > 1:
            targets.append(Target(name, block_config, block))
    if not targets:
        raise ConfigError(
            f"compile.scope = blocks: {type(net).__name__} has no repeated blocks (several modules of one "
            "class, with layers of their own); use compile.scope=parts, net or step"
        )
    return targets


def _matches(config: CompileConfig, net: nn.Module) -> list[Target]:
    modules = dict(_named_modules(net))
    targets: dict[str, Target] = {}
    complaints: list[str] = []
    for part in config.parts:
        matches = _modules_of(part, modules) or _function_of(part)
        targets.update(matches)
        complaints += _complaints(part, matches, modules, net)
    complaints += _nested(targets)
    refuse(complaints)
    if config.mode != "eager" and not any(target.compiles for target in targets.values()):
        raise ConfigError("compile.parts: all have mode = eager, so nothing would be compiled; use compile.mode=eager")
    in_modules = [targets[name] for name in modules if name in targets]
    functions = [target for target in targets.values() if target.module is None]
    return in_modules + functions


def _named_modules(net: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules within a network by name, each once; checkpointing's wrapper in place of the wrapped module."""
    for name, module in net.named_modules():
        if name and not name.endswith(CHECKPOINTED):
            yield name.replace(f"{CHECKPOINTED}.", ""), module


def _modules_of(part: PartConfig, modules: dict[str, nn.Module]) -> dict[str, Target]:
    targets = {}
    for name, module in modules.items():
        if _is_match(name, part.match):
            targets[name] = Target(name, part, module)
    return targets


def _is_match(name: str, pattern: str) -> bool:
    levels, globs = name.split("."), pattern.split(".")
    return len(levels) == len(globs) and all(map(fnmatchcase, levels, globs))


def _function_of(part: PartConfig) -> dict[str, Target]:
    """The Python function of a dotted name, if there is one."""
    module_name, _, attribute = part.match.rpartition(".")
    try:
        owner = importlib.import_module(module_name)
    except (ImportError, TypeError, ValueError):  # TypeError: the name starts with dots
        return {}
    if not isinstance(getattr(owner, attribute, None), FunctionType):
        return {}
    return {part.match: Target(part.match, part, owner=owner, attribute=attribute)}


def _complaints(
    part: PartConfig, matches: dict[str, Target], modules: dict[str, nn.Module], net: nn.Module
) -> Iterator[str]:
    """Why a pattern's matches cannot be compiled."""
    if not matches:
        yield _no_match(part.match, net, list(modules))
    for name, target in matches.items():
        package = name.partition(".")[0]
        if target.module is None and package in SHARED_PACKAGES:
            yield (
                f"compile.parts = {part.match}: belongs to {package}, and would be replaced for the whole process; "
                "name a function of the network's own that calls it"
            )
        if target.module is not None and type(target.module).forward is nn.Module.forward:
            yield (
                f"compile.parts = {part.match}: {name} is a {type(target.module).__name__}, which is never "
                f"called; match its entries, {name}.*"
            )


def _no_match(pattern: str, net: nn.Module, names: list[str]) -> str:
    children = [name for name in names if "." not in name] or ["no modules"]
    example = children[0] if names else "blocks"
    return (
        f"compile.parts = {pattern}: matches no module of {type(net).__name__} and names no function; it has "
        f"{', '.join(children)} (and what is in them, as in {example}.*)"
    )


def _nested(targets: dict[str, Target]) -> Iterator[str]:
    """A complaint for each region inside of another one, which takes it into its own graph."""
    compiled = [name for name, target in targets.items() if target.compiles and target.module is not None]
    for name in compiled:
        outer = next((other for other in compiled if name.startswith(f"{other}.")), None)
        if outer is not None:
            yield (
                f"compile.parts = {targets[name].config.match}: {name} is inside of {outer}, which is compiled as one; "
                "leave one of them out"
            )
