"""Whether a backend of torch.compile works on this machine."""

import difflib
import os
import sys
import sysconfig
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from trainkit.compiler.private_names import find
from trainkit.config.errors import ConfigError, refuse
from trainkit.config.settings import typed_value


def check_backend(setting: str, backend: str, device_type: str, must_compile: bool) -> None:
    """Raise ConfigError for an unknown backend, and for inductor on a CPU without a C++ compiler or without Python's
    headers if it must compile."""
    if backend != "inductor":  # the list of backends takes half a second: it imports them all
        _check_name(setting, backend)
    elif must_compile and device_type == "cpu":
        _check_cpp_compiler(setting)


def generates_code(backend: str) -> bool:
    """Whether a backend makes a program of a graph. Those to debug, as eager and aot_eager, run the graph as it is."""
    return backend == "inductor" or backend in torch.compiler.list_backends()  # which leaves out backends to debug


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError with a line for each of `compile.options` that this torch's inductor does not have, or whose
    value is of another type."""
    if not options:
        return
    list_options = find("list_options")
    names = list(options) if list_options is None else list_options()
    complaints = []
    for name, value in options.items():
        problem = _option_problem(name, value, names)
        if problem is not None:
            complaints.append(f"compile.options.{name} = {typed_value(value)}: {problem}")
    refuse(complaints)


def _option_problem(name: str, value: Any, names: Collection[str]) -> str | None:
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        way_out = f"did you mean {near[0]}?" if near else "torch._inductor.list_options() has the names"
        return f"no option of inductor in torch {torch.__version__}; {way_out}"
    try:
        torch.compile(options={name: value})(len)
    except RuntimeError as error:  # "Unexpected type of attr max_autotune, got str should be bool"
        return f"expected {str(error).rpartition(' ')[2]}"
    return None


def _check_name(setting: str, backend: str) -> None:
    if backend in torch.compiler.list_backends(exclude_tags=()):
        return
    names = ", ".join(["eager", "aot_eager", *torch.compiler.list_backends()])  # which leaves out backends to debug
    raise ConfigError(f"{setting} = {backend}: expected one of {names}")


def _check_cpp_compiler(setting: str) -> None:
    find_compiler, not_found = find("get_cpp_compiler"), find("InvalidCxxCompiler")
    if find_compiler is not None and not_found is not None:
        try:
            find_compiler()
        except not_found:
            raise ConfigError(
                f"{setting} = inductor: on a CPU it needs a C++ compiler and none was found; install g++ or clang++, "
                "or use compile.mode=eager; compile.backend=aot_eager shows graph breaks and recompiles without one"
            ) from None
    _check_python_header(setting)
    # Torch finds out the processor's vector instructions by compiling (16 s), once for each cache directory. Done
    # here, before the cache directory is changed, it is not done again in every cold cache.
    probe_instructions = find("pick_vec_isa")
    if probe_instructions is not None:
        probe_instructions()


def _check_python_header(setting: str) -> None:
    """Distributions of Linux have it in a package of its own, without which Python and venv work."""
    if sys.platform != "linux":
        return
    folders = [sysconfig.get_path("include"), sysconfig.get_path("include", scheme="posix_prefix")]
    for variable in ("CPATH", "CPLUS_INCLUDE_PATH"):
        folders += os.environ.get(variable, "").split(":")
    if not any(Path(folder, "Python.h").exists() for folder in folders):
        raise ConfigError(
            f"{setting} = inductor: on a CPU its C++ includes Python.h, which {folders[0]} lacks; install Python's "
            "headers (python3-dev of Debian, python3-devel of Fedora), or use compile.mode=eager"
        )
