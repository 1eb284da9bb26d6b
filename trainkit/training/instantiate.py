"""Objects of `_target_` nodes, and one readable line for each mistake in them."""

import difflib
import inspect
import sys
from collections.abc import Callable
from importlib import metadata
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from packaging.requirements import Requirement

from trainkit.compiler.errors import located_line
from trainkit.config.errors import TYPE_NAMES, ConfigError, refuse


def find_target(group: str, node: dict[str, Any]) -> Any:
    """The class or function that a `_target_` node names. Raises ConfigError if it is not there."""
    try:
        return get_object(node["_target_"])
    except (ImportError, ValueError) as error:
        target = str(node["_target_"])
        problem = _missing_name(target) or f"{located_line(error.__cause__ or error)}; {_way_to_import(error)}"
        raise ConfigError(f"{group}._target_ = {target}: {problem}") from error


def instantiate_node(group: str, name: str, node: dict[str, Any]) -> Any:
    """The object of a `_target_` node. Raises ConfigError if the class is not there or its arguments do not fit."""
    target = find_target(group, node)
    refuse(type_complaints(group, target, node))
    try:
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, ConfigError):
            raise cause from None
        problem = located_line(cause or error)
        raise ConfigError(f"{group} = {name}: {problem}; {_way_to_call(group, target, node)}") from error


def _way_to_call(group: str, target: Callable[..., Any], node: dict[str, Any]) -> str:
    """What to do about the error of a call: add what is missing. Functions that pass all their arguments on do not say
    which they take."""
    names, missing = [], []
    for parameter in inspect.signature(target).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        names.append(parameter.name)
        is_required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        if is_required and parameter.name not in node:
            missing.append(f"+{group}.{parameter.name}=...")
    if not names:
        return "choose other settings"
    takes = f"{target.__name__} takes ({', '.join(names)})"
    return f"{takes}; add {' '.join(missing)}" if missing else takes


def _missing_name(target: str) -> str | None:
    """The complaint where the module of `target` was imported and lacks the name."""
    module_name, _, name = target.rpartition(".")
    module = sys.modules.get(module_name)
    if module is None or hasattr(module, name):
        return None
    near = difflib.get_close_matches(name, vars(module), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{module_name} has no {name}{hint}"


def _way_to_import(error: ImportError | ValueError) -> str:
    """What to do about the error of `get_object`. Its cause names the package that is missing."""
    if error.__cause__ is not None and not isinstance(error.__cause__, ImportError | AttributeError):
        return "correct that module"
    missing = getattr(error.__cause__, "name", None)
    extra = extra_with(missing) if missing else None
    if extra is None:
        return "give a class of an installed package, or of a module in this folder"
    return f"install it with pip install 'trainkit[{extra}]' (in a clone: '.[{extra}]')"


def extra_with(package: str) -> str | None:
    """The first extra of trainkit that installs the package. None if trainkit is on a path and not installed."""
    try:
        distribution = metadata.distribution("trainkit")
    except metadata.PackageNotFoundError:
        return None
    requirements = [Requirement(text) for text in distribution.requires or []]
    for extra in distribution.metadata.get_all("Provides-Extra") or []:
        for requirement in requirements:
            marker = requirement.marker
            if requirement.name == package and marker is not None and marker.evaluate({"extra": extra}):
                return extra
    return None


def type_complaints(group: str, target: Callable[..., Any], node: dict[str, Any]) -> list[str]:
    """A complaint for each setting that the target declares as a number or a boolean and that is something else.

    A wrong type would otherwise fail deep inside of the target, or not at all.
    """
    complaints = []
    for name, parameter in _signature(target).items():
        if name not in node:
            continue
        value, expected = node[name], _plain_type(parameter.annotation)
        if expected is None or isinstance(value, dict) or _has_type(value, expected):
            continue
        if value is None and _takes_none(parameter):
            continue
        complaints.append(_type_complaint(f"{group}.{name}", value, expected, parameter.default))
    return complaints


def _type_complaint(setting: str, value: Any, expected: type, default: Any) -> str:
    shown = "null" if value is None else value
    complaint = f"{setting} = {shown}: expected {TYPE_NAMES[expected]}"
    if default in (None, inspect.Parameter.empty):
        return complaint
    return f"{complaint}; try {setting}={str(default).lower()}"


def _plain_type(annotation: Any) -> type | None:
    """The type that an annotation means, alone or with None: int, float or bool. None for all other annotations."""
    members = {annotation}
    if get_origin(annotation) in (Union, UnionType):
        members = set(get_args(annotation))
    members.discard(NoneType)
    if len(members) != 1:
        return None
    (member,) = members
    return member if member in TYPE_NAMES else None


def _has_type(value: Any, expected: type) -> bool:
    """Whether a value is of a plain type. An int is a float, but a bool is no number."""
    if isinstance(value, bool):
        return expected is bool
    if expected is float:
        return isinstance(value, int | float)
    return isinstance(value, expected)


def _takes_none(parameter: inspect.Parameter) -> bool:
    return parameter.default is None or NoneType in get_args(parameter.annotation)


def _signature(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function, or of a class and all its bases: a class may pass the rest on to its base."""
    calls = [target]
    if inspect.isclass(target):
        constructors = [vars(cls)["__init__"] for cls in inspect.getmro(target) if "__init__" in vars(cls)]
        calls = constructors[::-1] or [target]
    parameters: dict[str, inspect.Parameter] = {}
    for call in calls:
        try:
            parameters |= inspect.signature(call, eval_str=True).parameters
        except (NameError, ValueError):  # names that only a type checker imports; a function written in C
            continue
    return parameters
