"""A network as a program in a file: its graph by torch.export, or compiled ahead of time by AOTInductor."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from trainkit.compiler.errors import ExportError, first_line
from trainkit.compiler.private_names import require
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

    def forward(self, inputs: Tensor) -> Any:
        with torch.autocast(inputs.device.type, self.dtype):
            return self.net(inputs)


def export_network(network: nn.Module, inputs: Iterable[Tensor]) -> ExportedProgram:
    """The graph of a network in eval mode, for inputs of the given shapes: a dimension in which they differ is dynamic,
    from the smallest of its sizes to the largest.

    Raises ExportError, for instance for control flow by values or a network that fixes such a dimension.
    """
    examples = sorted(inputs, key=Tensor.numel)
    dims = {}
    for dim in range(examples[-1].ndim):
        sizes = {example.shape[dim] for example in examples}
        if len(sizes) > 1:
            dims[dim] = Dim(f"size_{dim}", min=min(sizes), max=max(sizes))
    try:
        with torch.no_grad():
            return torch.export.export(network, (examples[-1],), dynamic_shapes=(dims or None,))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of any kind: what the network raises while it is traced
        raise ExportError(f"torch.export: {first_line(error)}") from error


def save_program(program: ExportedProgram, path: Path) -> None:
    """Write an exported graph with its parameters."""
    torch.export.save(program, path)


def load_program(path: Path) -> nn.Module:
    """The module of an exported graph, on the device on which it was exported."""
    return torch.export.load(path).module()


def compile_package(program: ExportedProgram, mode: str, path: Path) -> None:
    """Compile an exported graph ahead of time, as torch.compile does in this mode, and write it with its parameters.
    Raises ExportError."""
    options = dict(require("list_mode_options")(mode))
    try:
        with torch.no_grad():
            require("aoti_compile_and_package")(program, package_path=str(path), inductor_configs=options)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of any kind, as the C++ compiler's
        raise ExportError(f"AOTInductor: {first_line(error)}") from error


def load_package(path: Path) -> Callable[[Tensor], Any]:
    """The compiled network of a package, on the device for which it was compiled."""
    package: Callable[[Tensor], Any] = require("aoti_load_package")(str(path))
    return package
