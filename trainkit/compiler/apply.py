"""Compiles an objective in place: as a whole, its network, or regions of it."""

import sys
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import ExitStack
from functools import wraps
from itertools import chain
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from trainkit.compiler import dynamic_shapes, dynamo
from trainkit.compiler.backends import check_backend, check_options
from trainkit.compiler.observer import Observer
from trainkit.compiler.regions import CompiledRegion, Target, select_targets, unwrapped
from trainkit.config.errors import ConfigError
from trainkit.config.schema import CompileConfig, PartConfig

CHIEF_OPTIONS = {  # of inductor, that a mode stands for
    "max-autotune": ("max_autotune", "triton.cudagraphs"),
    "max-autotune-no-cudagraphs": ("max_autotune",),
    "reduce-overhead": ("triton.cudagraphs",),
}
LEFT_OUT = "left out by compile.parts"  # diagnosis/remedies/graph_breaks.py looks for this reason


def compile_in_place(
    config: CompileConfig, objective: nn.Module, observer: Observer, undo: ExitStack, leave_hooks: bool = False
) -> list[CompiledRegion]:
    """Compile `objective` (scope step), `objective.net` (net) or regions of it (parts, blocks), which are returned.
    Checkpoint keys stay as they are. Functions are replaced in their Python modules until `undo`. `leave_hooks`: hooks
    of a region's module run uncompiled around it, also those that it gets later."""
    if config.scope in ("parts", "blocks"):
        return _compile_regions(config, objective.get_submodule("net"), observer, undo, leave_hooks)
    target_module(config, objective).compile(**options(config))
    return []


def target_module(config: CompileConfig, objective: nn.Module) -> nn.Module:
    """The module that is compiled as a whole, with scope step or net."""
    return objective if config.scope == "step" else objective.get_submodule("net")


def uncompile(objective: nn.Module) -> None:
    """Let all modules run uncompiled."""
    for module in objective.modules():
        module._compiled_call_impl = None  # as module.compile() sets it


def options(config: CompileConfig | PartConfig) -> dict[str, Any]:
    """The arguments of torch.compile."""
    arguments: dict[str, Any] = {"backend": config.backend, "dynamic": config.dynamic, "fullgraph": config.fullgraph}
    if config.options:  # in place of a mode; a copy, as torch takes some of them out
        arguments["options"] = dict(config.options)
    elif config.backend == "inductor":  # no other backend has modes
        arguments["mode"] = config.mode
    return arguments


def equivalent_mode(config: CompileConfig | PartConfig) -> str:
    """The mode that records CUDA graphs and autotunes as `options` request it; without options the mode itself."""
    if config.mode != "eager":
        for mode, names in CHIEF_OPTIONS.items():
            if all(config.options.get(name) for name in names):
                return mode
    return config.mode


def _compile_regions(
    config: CompileConfig, net: nn.Module, observer: Observer, undo: ExitStack, leave_hooks: bool
) -> list[CompiledRegion]:
    targets = select_targets(config, net)
    regions = [CompiledRegion(target) for target in targets if target.compiles]
    shared_codes: dict[Hashable, CodeType] = {}
    for region in regions:
        target = region.target
        if target.module is None:
            call = _region_call(region, target.function, target.function, observer)
            undo.enter_context(dynamo.replaced(target.owner, target.attribute, call))
        else:
            plain = target.module.forward if leave_hooks else target.module._call_impl
            function = _module_function(target.module, target.config, shared_codes, leave_hooks)
            region.code = function.__code__
            call = _region_call(region, function, plain, observer)
            if leave_hooks:
                undo.enter_context(dynamo.replaced(target.module, "forward", call))
            else:
                target.module._compiled_call_impl = call
    for target in targets:
        if not target.compiles:
            _leave_out(target, regions, undo)
    return regions


def _region_call(
    region: CompiledRegion, function: Callable[..., Any], plain: Callable[..., Any], observer: Observer
) -> Callable[..., Any]:
    """`function` compiled; `observer` counts the calls and their graphs as the region's."""
    compiled = torch.compile(function, **options(region.target.config))

    @wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # called in another region, which takes it into its graph
            return plain(*args, **kwargs)
        region.num_calls += 1
        observer.regions.append(region)
        try:
            return compiled(*args, **kwargs)
        finally:
            observer.regions.pop()

    return call


def _module_function(
    module: nn.Module, config: PartConfig, shared_codes: dict[Hashable, CodeType], leave_hooks: bool
) -> FunctionType:
    """A function that calls a module, without its hooks if they are left, to be compiled in its place.

    It is needed because torch.compile skips the frames of torch's own classes (nn.Sequential, the wrapper of activation
    checkpointing), but takes them into the graph of another frame.

    Torch keeps compiled variants, and counts its recompile limit, by code object. So modules of one class with the same
    sizes and options get one code object: a block is compiled once for all its repetitions. Any other module gets a
    copy of the code object: its variants are no recompiles of other modules'.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return module._call_impl(*args, **kwargs)

    def call_forward(*args: Any, **kwargs: Any) -> Any:
        return type(module).forward(module, *args, **kwargs)

    function = call_forward if leave_hooks else call
    sizes = tuple(tensor.shape for tensor in chain(module.parameters(), module.buffers()))
    shares_graphs = type(unwrapped(module)), sizes, str(options(config))
    function.__code__ = shared_codes.setdefault(shares_graphs, function.__code__.replace())
    return function  # type: ignore[return-value]  # a def is a FunctionType


def give_own_code(network: nn.Module) -> None:
    """Give this network's modules `forward` methods with code objects of their own.

    All instances of a class share its code object, so networks of the same classes would share compiled variants and
    the recompile limit (see `_module_function`). Modules of one class within this network still share one, so that
    repeated blocks share their graphs.
    """
    copies: dict[CodeType, CodeType] = {}
    for module in network.modules():
        forward = type(module).forward
        if not isinstance(forward, FunctionType) or str(forward.__module__).startswith("torch."):
            continue
        code = forward.__code__
        if code not in copies:
            copies[code] = code.replace()
        own_forward = _with_code(forward, copies[code])
        module.forward = MethodType(own_forward, module)


def _with_code(function: FunctionType, code: CodeType) -> FunctionType:
    """A copy of a function that runs another code object."""
    copied = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__dict__.update(function.__dict__)
    return copied


def _leave_out(target: Target, regions: list[CompiledRegion], undo: ExitStack) -> None:
    """Keep a function, or a module inside of a region, out of the graphs around it."""
    if target.module is None:
        function = torch.compiler.disable(target.function, reason=LEFT_OUT)
        undo.enter_context(dynamo.replaced(target.owner, target.attribute, function))
    elif any(target.name.startswith(f"{region.target.name}.") for region in regions):
        forward = torch.compiler.disable(target.module.forward, reason=LEFT_OUT)
        undo.enter_context(dynamo.replaced(target.module, "forward", forward))


def check_network(
    config: CompileConfig,
    net: nn.Module,
    batch: tuple[Any, ...],
    device_type: str,
    sizes_by_dim: Mapping[int, Collection[int]],
) -> None:
    """Raise ConfigError if a backend cannot work on this machine, if the scope does not fit the network, or if a
    dimension to mark fits neither the batch nor the sizes that will come in it."""
    if config.max_memory_frac is not None and device_type == "cpu" and sys.platform != "linux":
        raise ConfigError(
            f"compile.max_memory_frac = {config.max_memory_frac}: a CPU's memory in use is read on Linux alone; leave "
            "it out, or use a GPU"
        )
    dynamic_shapes.check_dims(config.mark_dynamic, batch)
    dynamic_shapes.check_bounds(config.mark_dynamic, sizes_by_dim)
    is_bare = type(net).__module__.startswith("torch.nn.")
    if config.scope == "net" and config.mode != "eager" and is_bare:
        raise ConfigError(
            f"compile.scope = net: torch.compile skips a bare {type(net).__name__} of torch.nn silently; "
            "use compile.scope=step, or wrap the network in a class of your own"
        )
    if config.mode != "eager":
        check_options(config.options)
    configs: dict[str, CompileConfig | PartConfig] = {"compile.backend": config}
    if config.scope in ("parts", "blocks"):
        for target in select_targets(config, net):
            if target.config.backend != config.backend:
                configs[f"compile.parts, {target.config.match}: backend"] = target.config
    for setting, backend_config in configs.items():
        must_compile = backend_config.mode != "eager" and config.on_error != "eager"
        check_backend(setting, backend_config.backend, device_type, must_compile)
