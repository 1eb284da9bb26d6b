"""trainkit's step on several ranks beside that of a bare PyTorch DDP loop of the same objective, interleaved.

    python benchmarks/ddp.py [--nproc N] [--repeats N] [--bare OVERRIDES ...] [--wrapped OVERRIDES ...]
        [--ours OVERRIDES ...] [override ...]
    python benchmarks/ddp.py experiment=full_size/gpt2 compile.mode=default \\
        --bare ddp.optimize_ddp=no_optimization --bare "ddp.optimize_ddp=no_optimization ddp.static_graph=true"

Each `--bare`, `--wrapped` and `--ours` is an arm with overrides of its own, usually of ddp.*; without one there is a
bare arm and one of ours without any. A repeat runs each arm once, under a torchrun of its own, in an order that turns
round. The bare loop compiles the objective in place and wraps it in DistributedDataParallel with the arguments of
ddp.*; `--wrapped` is a bare loop in the other order, which compiles what DistributedDataParallel has wrapped. A step is
timed alike in all: by CUDA events on a GPU, the slowest rank's of each step, its median over the run. Printed are the
median (min-max) over the repeats, and the best of ours, and of the wrapped, over the best bare loop with its 95 %
interval.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trainkit import cli
from trainkit.config.composition import compose_config
from trainkit.config.schema import RunConfig
from trainkit.distributed.collectives import gather
from trainkit.distributed.ddp import ddp_arguments
from trainkit.distributed.topology import select_devices
from trainkit.inputs import to_device
from trainkit.metrics.timer import timed_ms
from trainkit.results.files import read_row
from trainkit.stats import ratio
from trainkit.training.model import build_data, build_model
from trainkit.training.objective import build_objective
from trainkit.training.optimizer import build_optimizer
from trainkit.training.process import run_settings

ROOT = Path(__file__).parent.parent
WARM_UP = 30  # steps with the compiles
STEPS = 100
RESULT = "bare.json"
WRAP_FIRST = "--wrap-first"  # the first argument of a rank's bare loop that wraps before it compiles


@dataclass
class Arm:
    """One kind of loop with its settings of its own, and its median step in each repeat."""

    name: str
    script: Path
    overrides: list[str]
    options: list[str] = field(default_factory=list)
    steps_ms: list[float] = field(default_factory=list)

    def measure(self, shared: list[str], num_processes: int) -> None:
        """Run the loop once. Ends the program if it fails."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            command += [f"--nproc-per-node={num_processes}", str(self.script), *self.options, *shared, *self.overrides]
            command.append(f"hydra.run.dir={folder}")
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            step_ms = self._read_step_ms(Path(folder))
            if done.returncode != 0 or step_ms is None:
                sys.exit(f"{done.stdout}\nddp: {self.name} failed")
        self.steps_ms.append(step_ms)

    def _read_step_ms(self, folder: Path) -> float | None:
        if self.script == Path(__file__):
            result = folder / RESULT
            return float(json.loads(result.read_text())) if result.exists() else None
        row = read_row(folder)
        if row is None or row.status != "ok" or row.effective_mode not in (row.compile_mode, None):
            return None
        return row.step_time_ms_p50

    def line(self) -> str:
        times = f"{median(self.steps_ms):.3f} ms ({min(self.steps_ms):.3f}-{max(self.steps_ms):.3f})"
        return f"{self.name}: {times}"


def train_bare(config: RunConfig, wraps_first: bool) -> float:
    """Train the loop anyone would write on this rank. Returns the median milliseconds of a step of the slowest rank."""
    devices = select_devices(config)
    device = torch.device("cpu")
    if devices.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if devices.type == "cuda" else "gloo")
    torch.manual_seed(config.seed)
    data = build_data(config)
    data.device_alone = device
    data.setup("fit")
    batches = [to_device(batch, device) for batch in data.train_dataloader().batches]
    objective = build_objective(config, build_model(config, data, devices), data.prepare).train()
    torch._dynamo.config.optimize_ddp = config.ddp.optimize_ddp  # type: ignore[assignment]  # one of its words
    net: torch.nn.Module = objective.to(device)
    if not wraps_first:
        compile_bare(net, config)
    if devices.world_size > 1:
        device_ids = [device] if device.type == "cuda" else None
        net = DistributedDataParallel(objective, device_ids, **ddp_arguments(config.ddp))
    if wraps_first:
        compile_bare(net, config)
    optimizer = build_optimizer(config)(net)
    is_bf16 = config.amp.precision == "bf16-mixed"
    num_batches = 0

    def step() -> None:
        nonlocal num_batches
        inputs, targets = batches[num_batches % len(batches)]
        num_batches += 1
        with torch.autocast(device.type, torch.bfloat16, enabled=is_bf16):
            loss = net(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    timed_ms(step, WARM_UP, device.type == "cuda")
    times_of_ranks = gather(timed_ms(step, STEPS, device.type == "cuda"))
    return median(max(step_of_ranks) for step_of_ranks in zip(*times_of_ranks, strict=True))


def compile_bare(net: torch.nn.Module, config: RunConfig) -> None:
    if config.compile.mode != "eager":
        net.compile(mode=config.compile.mode, dynamic=config.compile.dynamic, backend=config.compile.backend)


def run_bare(arguments: list[str]) -> None:
    """The bare loop of one rank; rank 0 writes its step time."""
    wraps_first = arguments[0] == WRAP_FIRST
    if wraps_first:
        arguments = arguments[1:]
    *overrides, run_dir = arguments
    folder = Path(run_dir.partition("=")[2])
    with cli.one_line_errors():
        config = compose_config(overrides, ROOT / "conf", str(folder))
        with run_settings(config):
            step_ms = train_bare(config, wraps_first)
    if dist.get_rank() == 0:
        (folder / RESULT).write_text(json.dumps(step_ms))
    dist.destroy_process_group()


def main() -> None:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        run_bare(sys.argv[1:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bare", action="append", metavar="OVERRIDES")
    parser.add_argument("--wrapped", action="append", metavar="OVERRIDES", default=[])
    parser.add_argument("--ours", action="append", metavar="OVERRIDES")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    bare = [Arm(f"bare {words}".strip(), Path(__file__), words.split()) for words in options.bare or [""]]
    ours = [Arm(f"ours {words}".strip(), ROOT / "train.py", words.split()) for words in options.ours or [""]]
    wrapped = []
    for typed in options.wrapped:
        wrapped.append(Arm(f"wrapped {typed}".strip(), Path(__file__), typed.split(), [WRAP_FIRST]))
    shared = ["data=synthetic", *options.overrides, "logger=none", "trainer.limit_val_batches=0"]
    shared.append("checkpoint.save_last=false")
    shared += [f"data.num_batches={WARM_UP + STEPS}", "trainer.max_epochs=1"]
    arms = [*bare, *wrapped, *ours]
    for repeat in range(options.repeats):
        for number in range(len(arms)):
            arms[(repeat + number) % len(arms)].measure(shared, options.nproc)
        print(f"repeat {repeat}: {', '.join(f'{arm.name} {arm.steps_ms[-1]:.3f}' for arm in arms)}", flush=True)
    print(f"torch {torch.__version__}, {options.nproc} processes, {options.repeats} repeats")
    for arm in arms:
        print(arm.line())
    best_bare = best_of(bare)
    print(comparison_line(best_of(ours), best_bare))
    if wrapped:
        print(comparison_line(best_of(wrapped), best_bare))


def best_of(arms: list[Arm]) -> Arm:
    return min(arms, key=lambda arm: median(arm.steps_ms))


def comparison_line(arm: Arm, bare: Arm) -> str:
    over_bare = ratio(arm.steps_ms, bare.steps_ms)
    interval = ""
    if over_bare.low is not None:
        interval = f" ({over_bare.low:.4f}-{over_bare.high:.4f})"
    return f"{arm.name} over {bare.name}: {over_bare.value:.4f}{interval}"


if __name__ == "__main__":
    main()
