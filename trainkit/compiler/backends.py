"""Whether a backend of torch.compile works on this machine."""

import torch

from trainkit.compiler.private_names import find
from trainkit.config.errors import ConfigError


def check_backend(setting: str, backend: str, device_type: str, must_compile: bool) -> None:
    """Raise ConfigError for an unknown backend, and for inductor on a CPU without a C++ compiler if it must compile."""
    if backend != "inductor":  # the list of backends takes half a second: it imports them all
        _check_name(setting, backend)
    elif must_compile and device_type == "cpu":
        _check_cpp_compiler(setting)


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
                f"{setting} = inductor: on a CPU it needs a C++ compiler and none was found; "
                "install g++ or clang++, or use compile.mode=eager"
            ) from None
    # Torch finds out the processor's vector instructions by compiling (16 s), once for each cache directory. Done
    # here, before the cache directory is changed, it is not done again in every cold cache.
    probe_instructions = find("pick_vec_isa")
    if probe_instructions is not None:
        probe_instructions()
