"""The cost of capture, compile and calls under several versions of Python, each with a torch of its own.

    python benchmarks/python_versions.py python3.11 python3.12 python3.13 [--repeats N]

Each interpreter has trainkit's dependencies installed, with one version of torch. Its runs are processes of their own
on the CPU with a fresh compile cache, interleaved with those of the others: mini_transformer (dim 256, 4 layers) is
called with 16 x 128 tokens, compiled in mode default. Medians with the least and the greatest repeat, and the ratio of
the medians to the first interpreter's. A process's first compile, which loads the compiler, is made before and does not
count.

    capture    seconds of Dynamo
    compile    seconds of all stages, capture among them
    first      seconds of the first call, compile included
    processor  seconds of the processors in the first call, the C++ compiler's among them: other work on the machine
               lengthens them less
    call       milliseconds of a later call, the median of 100 after 10
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from trainkit.device_names import cpu_name

FIGURES = {"capture": "s", "compile": "s", "first": "s", "processor": "s", "call": "ms"}
ROOT = Path(__file__).parent.parent


def measure() -> dict[str, float | str]:
    """Compile and call the network in this process."""
    import torch

    from trainkit.compiler import facts
    from trainkit.compiler.compiler import Compiler
    from trainkit.config.schema import CompileConfig, DdpConfig
    from trainkit.models.mini_transformer import MiniTransformer

    torch.manual_seed(0)
    network = MiniTransformer(1024, 128, num_classes=10, next_token=False, dim=256, depth=4).eval()
    tokens = torch.randint(1024, (16, 128))
    with Compiler(CompileConfig()) as compiler:
        compiler.start_up(torch.device("cpu"))
        compiler.apply(network, DdpConfig())
        torch.set_grad_enabled(False)
        processor_s = -processor_time_s()
        times_s = [call_time_s(compiler, tokens)]
        processor_s += processor_time_s()
        for _ in range(110):
            times_s.append(call_time_s(compiler, tokens))
        stages_s = facts.stages_s() or {}
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "capture": stages_s["capture"],
        "compile": sum(stages_s.values()),
        "first": times_s[0],
        "processor": processor_s,
        "call": 1e3 * median(times_s[11:]),
    }


def call_time_s(network: Callable[..., Any], *inputs: Any) -> float:
    start = time.perf_counter()
    network(*inputs)
    return time.perf_counter() - start


def processor_time_s() -> float:
    """Seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def run(interpreter: str) -> dict[str, float | str]:
    """Measure in a process of this interpreter. Exits if it fails."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "TORCHINDUCTOR_CACHE_DIR": cache,
            "PYTHONPATH": str(ROOT),
            "CUDA_VISIBLE_DEVICES": "",
        }
        command = [interpreter, __file__, "--one"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    measured: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return measured


def show(measured: dict[str, list[dict[str, float | str]]]) -> None:
    """Print a line for each interpreter."""
    baselines: dict[str, float] = {}
    header = [f"{name} {unit}".ljust(28) for name, unit in FIGURES.items()]
    print("python   torch          ", *header)
    for repeats in measured.values():
        cells = []
        for name in FIGURES:
            values = [float(repeat[name]) for repeat in repeats]
            ratio = median(values) / baselines.setdefault(name, median(values))
            cells.append(f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f}) {ratio:.2f}x".ljust(28))
        print(f"{repeats[0]['python']:8} {repeats[0]['torch']:15}", *cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("interpreters", nargs="*", default=[sys.executable])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure()))
        return
    measured: dict[str, list[dict[str, float | str]]] = {interpreter: [] for interpreter in arguments.interpreters}
    for repeat in range(arguments.repeats):
        for interpreter in arguments.interpreters:
            measured[interpreter].append(run(interpreter))
            print(f"repeat {repeat + 1} of {arguments.repeats}: {interpreter}", file=sys.stderr, flush=True)
    print(f"{os.cpu_count()} x {cpu_name()}, {arguments.repeats} repeats, interleaved")
    show(measured)


if __name__ == "__main__":
    main()
