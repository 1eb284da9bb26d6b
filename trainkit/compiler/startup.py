"""The costs that a process has once, at its first compile: imports, tools, workers. They are no network's."""

from concurrent.futures import wait

import torch

from trainkit.compiler import dynamo
from trainkit.compiler.errors import is_compile_error

WORKERS_START_S = 60  # at most; a run goes on without them too


def compile_throw_away(device: torch.device, backend: str) -> None:
    """Compile a function that nobody needs, forward and backward. A backend that fails to compile it will report so
    for the network itself."""
    weights = torch.ones(8, 8, device=device, requires_grad=True)
    try:
        torch.compile(_throw_away, backend=backend)(weights).backward()
    except Exception as error:
        if not is_compile_error(error):
            raise


def _throw_away(weights: torch.Tensor) -> torch.Tensor:
    """A matrix product, a convolution and a sum: on a GPU their libraries too are loaded at the first call."""
    return torch.conv2d((weights @ weights)[None, None], weights[None, None, :3, :3]).sum()


def wait_for_workers() -> None:
    """Wait until inductor's compile workers have started, if there are any: inductor starts them at its first compile
    for a GPU, and the processor time that they take would be measured with the first steps."""
    workers = dynamo.compile_workers()
    if workers is not None:
        wait([workers], WORKERS_START_S)
