"""The outcome of compiling a construct, and the gradients of a rewrite beside those of the plain construct."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from trainkit.compiler import dynamo
from trainkit.compiler.constructs import construct_named
from trainkit.compiler.graph_breaks import left_to_python, read_graph_breaks

BREAKS = "breaks"
RECOMPILES = "recompiles"
LEFT_TO_EAGER = "breaks, the function runs in eager"
ONE_GRAPH = "one graph"
SAME = "same gradients"
SAME_WITH_FULLGRAPH = "same gradients, with fullgraph=True alone"
FAILS = "does not compile"
WRONG = "wrong gradients"


def compiled_outcome(name: str) -> str:
    """Compile the construct and call it three times, with tensors of one shape. It resets Dynamo."""
    dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        compiled = torch.compile(construct_named(name), backend="eager")
        for scale in (1.0, 0.5, 2.0):
            compiled(scale * torch.ones(4, 4))
    breaks = read_graph_breaks() or []
    if left_to_python(breaks):
        return LEFT_TO_EAGER
    if breaks:
        return BREAKS
    if (dynamo.num_graphs() or 0) > 1:
        return RECOMPILES
    return ONE_GRAPH


def trained_outcome(name: str, plain: str) -> str:
    """Whether the compiled construct has the gradients of a plain one that computes the same, with and without
    differentiation by AOTAutograd (backends aot_eager and eager). It resets Dynamo."""
    outcomes = [_trained_outcome(name, plain, backend) for backend in ("eager", "aot_eager")]
    return max(outcomes, key=(SAME, SAME_WITH_FULLGRAPH, FAILS, WRONG).index)


def _trained_outcome(name: str, plain: str, backend: str) -> str:
    expected = _gradient(construct_named(plain))
    for fullgraph, outcome in ((False, SAME), (True, SAME_WITH_FULLGRAPH)):
        dynamo.reset()
        compiled = torch.compile(construct_named(name), backend=backend, fullgraph=fullgraph)
        try:
            with warnings.catch_warnings(action="ignore"):
                gradient = _gradient(compiled)
        except dynamo.compile_errors():
            return FAILS
        if not torch.allclose(gradient, expected):
            return WRONG
        if not read_graph_breaks():
            return outcome
    return FAILS


def _gradient(construct: Callable[[Tensor], Tensor]) -> Tensor:
    x = torch.linspace(-1, 1.2, 16).view(4, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(construct(x).square().sum(), x)
    return gradient
