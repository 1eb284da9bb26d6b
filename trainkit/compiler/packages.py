"""A network as a program in a file: its graph by torch.export, or compiled ahead of time by AOTInductor."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from trainkit.compiler.errors import ExportError, first_line
from trainkit.compiler.private_names import require
from trainkit.inputs import Inputs, map_tensors, tensors_of
from trainkit.results.effective import CompileFacts

# Of a package of AOTInductor: one graph, which Dynamo has no part in.
PACKAGE_FACTS = CompileFacts(
    num_graphs=1,
    num_graph_breaks=0,
    graph_breaks=[],
    num_recompiles=0,
    recompiles=[],
    recompile_shapes=[],
    recompile_times_s=[],
    num_cudagraphs=0,
    num_cudagraph_skips=0,
    cudagraph_skips=[],
    recompile_limit_hit=False,
)


class Autocast(nn.Module):
    """A network under autocast, so that an exported graph has the casts: a package does not see autocast around it."""

    def __init__(self, net: nn.Module, dtype: torch.dtype):
        super().__init__()
        self.net = net
        self.dtype = dtype

    def forward(self, inputs: Inputs) -> Any:
        with torch.autocast(tensors_of(inputs)[0].device.type, self.dtype):
            return self.net(inputs)


def export_network(network: nn.Module, inputs: Iterable[Inputs]) -> ExportedProgram:
    """The graph of a network in eval mode, for inputs of the given shapes: a dimension in which they differ is dynamic,
    from the smallest of its sizes to the largest. Tensors that always agree in it share it.

    Raises ExportError, for instance for control flow by values or a network that fixes such a dimension.
    """
    examples = sorted(inputs, key=_num_elements)
    dynamic_shapes = _dynamic_shapes(examples)
    try:
        with torch.no_grad():
            return torch.export.export(network, (examples[-1],), dynamic_shapes=(dynamic_shapes,))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of any kind: what the network raises while it is traced
        raise ExportError(f"torch.export: {first_line(error)}") from error


def _num_elements(inputs: Inputs) -> int:
    return sum(tensor.numel() for tensor in tensors_of(inputs))


def _dynamic_shapes(examples: Sequence[Inputs]) -> Any:
    """The dynamic dimensions of each tensor of the inputs, nested as they are."""
    tensors_by_example = [tensors_of(inputs) for inputs in examples]
    shared: dict[tuple[int, ...], Any] = {}  # by the number of the dimension and its size in each example
    dims_of: dict[int, dict[int, Any]] = {}  # by the id of the last example's tensor
    for tensors in zip(*tensors_by_example, strict=True):
        dims_of[id(tensors[-1])] = dims = {}
        for dim in range(tensors[-1].ndim):
            sizes = [tensor.shape[dim] for tensor in tensors]
            if len(set(sizes)) > 1:
                new = Dim(f"size_{dim}_{len(shared)}", min=min(sizes), max=max(sizes))
                dims[dim] = shared.setdefault((dim, *sizes), new)
    return map_tensors(lambda tensor: dims_of[id(tensor)], examples[-1])


def constant_bytes(program: ExportedProgram) -> int:
    """Size of the parameters, buffers and constants of a graph."""
    tensors = [*program.state_dict.values(), *program.constants.values()]
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))


def save_program(program: ExportedProgram, path: Path) -> None:
    """Write an exported graph with its parameters."""
    torch.export.save(program, path)


def load_program(path: Path) -> nn.Module:
    """The module of an exported graph, on the device on which it was exported."""
    return torch.export.load(path).module()


def compile_package(program: ExportedProgram, mode: str, path: Path) -> None:
    """Compile an exported graph ahead of time, as torch.compile does in this mode, and write it with its parameters.
    Raises ExportError, also for a package that could not be loaded."""
    options = dict(require("list_mode_options")(mode))
    try:
        with torch.no_grad():
            require("aoti_compile_and_package")(program, package_path=str(path), inductor_configs=options)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of any kind, as the C++ compiler's
        raise ExportError(f"AOTInductor: {first_line(error)}") from error
    if sys.platform == "linux" and not shares_standard_library(path):
        raise ExportError(
            "AOTInductor: the C++ compiler has linked its standard library into the package, which would crash beside "
            "torch's; set CXX to a compiler that links libstdc++.so"
        )


def shares_standard_library(package: Path) -> bool:
    """Whether the libraries of a package load the C++ standard library, as torch does, instead of containing one."""
    with ZipFile(package) as archive:
        libraries = [archive.read(name) for name in archive.namelist() if name.endswith(".so")]
    return all(b"libstdc++.so" in library or b"libc++.so" in library for library in libraries)


def load_package(path: Path) -> Callable[[Inputs], Any]:
    """The compiled network of a package, on the device for which it was compiled."""
    package: Callable[[Inputs], Any] = require("aoti_load_package")(str(path))
    return package
