"""Does the called program return what the network returns in eager? The outputs of both, against float64."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainkit.compiler.errors import first_line
from trainkit.inference.cascade import CascadeStage
from trainkit.inputs import Inputs, call, to_device, to_double
from trainkit.training.copies import Differences, TensorKey, default_dtype, error_of, relative_differences
from trainkit.training.criterion import logits_of
from trainkit.training.numerics import OutputAnswer, judge_outputs, random_states
from trainkit.training.objective import Forward
from trainkit.training.precision import call_with_autocast

Outputs = dict[TensorKey, Tensor]


def check_outputs(stage: CascadeStage, eager: Forward, batches: Sequence[Inputs], device: torch.device) -> OutputAnswer:
    """Whether a stage returns the same numbers as `eager`, a copy of its network that nobody has compiled.

    Floating-point tensors in the outputs of the batches are compared, each relative to its norm: the stage's and
    eager's in the requested precision with those of eager in float64. `check_passed` is None without such a tensor, if
    eager is itself far from float64, if the network draws random numbers, or if a copy cannot be called. No Exception
    is raised for an error in a call.
    """
    precision = stage.config.amp.precision
    called = "the program"
    try:
        with stage.ready(device):
            requested = _outputs(stage.call, batches, device)
        # Functions that are compiled in place are called by eager too.
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            called = "the network in eager"
            eager.eval().to(device)
            states_before = random_states(device)
            expected = _outputs(lambda inputs: call_with_autocast(eager, (inputs,), precision), batches, device)
            if random_states(device) != states_before:
                return OutputAnswer(None, "the network draws random numbers: each call draws others")
            called = "the network in float64"
            eager.net.double()
            with default_dtype(torch.float64), sdpa_kernel(SDPBackend.MATH):
                reference = _outputs(lambda inputs: _call_in_float64(eager, inputs), batches, device)
    except Exception as error:  # of any kind: the calls that are checked are over, and have their row
        return OutputAnswer(None, f"{called} could not be called: {first_line(error)}")
    if not reference:
        return OutputAnswer(None, "the network returns no floating-point tensor")
    return judge_outputs(_differences(requested, reference), _differences(expected, reference), stage.config.amp)


def _call_in_float64(network: Forward, inputs: Inputs) -> Any:
    with default_dtype(torch.float32):
        prepared = network.prepare(inputs)
    return logits_of(call(network.net, to_double(prepared)))


def _outputs(called: Callable[[Inputs], Any], batches: Sequence[Inputs], device: torch.device) -> Outputs:
    """The floating-point tensors of the outputs, on the CPU."""
    outputs = {}
    for number, inputs in enumerate(batches):
        for name, tensor in _named_tensors(called(to_device(inputs, device))):
            if tensor.is_floating_point():
                outputs[TensorKey("outputs", number, name)] = tensor.detach().to("cpu", copy=True)
    return outputs


def _named_tensors(outputs: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors in nested outputs, by their keys and positions."""
    if isinstance(outputs, Tensor):
        yield name, outputs
        return
    entries: list[tuple[Any, Any]] = []
    if isinstance(outputs, Mapping):
        entries = list(outputs.items())
    elif isinstance(outputs, Sequence) and not isinstance(outputs, str):
        entries = list(enumerate(outputs))
    for key, entry in entries:
        yield from _named_tensors(entry, f"{name}.{key}".lstrip("."))


def _differences(outputs: Outputs, reference: Outputs) -> Differences:
    """The relative difference of each tensor; infinite for one that is missing or has another shape."""
    errors = {}
    differences = {}
    for key, expected in reference.items():
        tensor = outputs.get(key)
        if tensor is None or tensor.shape != expected.shape:
            differences[key] = math.inf
        else:
            errors[key] = error_of(tensor, expected)
    return differences | relative_differences(errors)
