"""The costs that a process has once, at its first compile: imports, tools, workers. They are no network's."""

import os
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager

import torch

from trainkit.compiler import dynamo, inductor
from trainkit.compiler.errors import is_compile_error
from trainkit.config.schema import CompileConfig

WORKERS_START_S = 60  # at most; a run goes on without them too


@contextmanager
def shared_cores(num_ranks: int) -> Iterator[None]:
    """Let inductor compile with this rank's share of the machine's cores: each rank would start up to 32 workers
    (https://github.com/pytorch/pytorch/issues/190941). A number that the user has set stays."""
    threads = inductor.compile_threads()
    share = max(1, num_cores() // num_ranks)
    if threads is None or share >= threads or "TORCHINDUCTOR_COMPILE_THREADS" in os.environ:
        yield
        return
    with dynamo.settings(compile_threads=share):
        yield


def num_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def start_workers_for(compile_: CompileConfig, device_type: str, is_counted: bool) -> None:
    """Have inductor start its workers if it will compile for a GPU.

    They import torch while the network is built. If torch starts CUDA in this process before it starts them, as before
    it forks them, they wait until the processes on the device are counted: `is_counted`.
    """
    backends = {compile_.backend, *(part.backend for part in compile_.parts)}
    if compile_.mode == "eager" or "inductor" not in backends or device_type != "cuda":
        return
    if inductor.workers_start_cuda() == is_counted:
        inductor.start_workers()


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
    workers = inductor.compile_workers()
    if workers is not None:
        wait([workers], WORKERS_START_S)
