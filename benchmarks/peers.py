"""Our training step beside that of what people would use instead: on one GPU, in one run, interleaved.

    python benchmarks/peers.py gpt2 --nanogpt PATH_OF_ITS_REPOSITORY [--modes MODE,...] [--rounds N] [override ...]
    python benchmarks/peers.py vit_b16 | resnet50 (beside timm's) | bert (beside transformers') [...]

The sizes are those of conf/experiment/full_size. Both have the same batches, precision and optimizer, and the same
loop. Ours is the Objective as trainkit compiles it; the peer is its network in torch.compile, with the loss where it
has it: within (nanoGPT), or after it. Of each round of STEPS steps the mean is taken; printed are the medians over the
rounds, and the ratio of the two within a round. The share of the matmul's speed is that of the step's FLOPs, as torch
counts them in our network (attention as if it were not causal), in the speed of a bfloat16 product of 8192 x 8192
matrices, measured in the same run.
"""

import argparse
import importlib
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from kernels import copy_bytes_per_s, median_ms
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from trainkit import cli
from trainkit.compiler.compiler import Compiler
from trainkit.config.composition import compose_config
from trainkit.config.errors import ConfigError
from trainkit.config.schema import Mode, RunConfig
from trainkit.data.module import DataModule
from trainkit.distributed.topology import select_devices
from trainkit.training.model import build_data, build_model
from trainkit.training.objective import build_objective, logits_of
from trainkit.training.optimizer import build_optimizer

STEPS, WARM_UP = 20, 15
NETWORKS = ("gpt2", "vit_b16", "resnet50", "bert")  # of conf/experiment/full_size
Loss = Callable[[Tensor, Tensor], Tensor]


class Arm:
    """One way to train the network: its parameters, its loss, and what a round of steps took."""

    def __init__(self, name: str, parameters: nn.Module, loss: Loss, config: RunConfig, batches: list):
        self.name, self.loss, self.batches = name, loss, batches
        self.optimizer = build_optimizer(config)(parameters.parameters())
        self.round_ms: list[float] = []

    def step(self, number: int) -> Tensor:
        inputs, targets = self.batches[number % len(self.batches)]
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.loss(inputs, targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def round(self) -> None:
        """STEPS steps, timed by the device; a few before them bring it back from the other arms."""
        for number in range(3):
            self.step(number)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for number in range(STEPS):
            self.step(number)
        end.record()
        torch.cuda.synchronize()
        self.round_ms.append(start.elapsed_time(end) / STEPS)


def ours(config: RunConfig, data: DataModule, batches: list) -> Arm:
    """Our network and loss in one graph, compiled as `compile.*` says."""
    objective = build_objective(config, build_model(config, data, select_devices(config)))
    compiler = Compiler(config.compile)
    compiler.apply(objective.cuda().train(), config.ddp.optimize_ddp)
    return Arm("ours", objective, compiler, config, batches)


def package_of(name: str, nanogpt: Path | None) -> Any:
    """Where the user has the other one's network."""
    if name != "gpt2":
        return found({"bert": "transformers"}.get(name, "timm"))
    if nanogpt is None or not (nanogpt / "model.py").is_file():
        raise ConfigError(f"--nanogpt = {nanogpt}: no model.py in it; give the path of a clone of nanoGPT")
    sys.path.insert(0, str(nanogpt))
    return importlib.import_module("model")


def peer(name: str, config: RunConfig, batches: list, package: Any) -> Arm:
    """The other one's network of the same size."""
    data, model = config.data, config.model
    if name == "gpt2":
        sizes = {"n_layer": model["depth"], "n_head": model["num_heads"], "n_embd": model["dim"]}
        sizes |= {"block_size": data["seq_len"], "vocab_size": data["vocab_size"]}
        net = package.GPT(package.GPTConfig(dropout=model["dropout"], bias=model["bias"], **sizes))
    elif name == "bert":
        shared = {"vocab_size": data["vocab_size"], "num_labels": data["num_classes"], "hidden_size": model["dim"]}
        shared |= {"num_hidden_layers": model["depth"], "num_attention_heads": model["num_heads"]}
        dropout = {f"{part}_dropout_prob": model["dropout"] for part in ("hidden", "attention_probs")}
        net = package.BertForSequenceClassification(package.BertConfig(**shared, **dropout))
    else:
        known = {"vit_b16": "vit_base_patch16_224", "resnet50": "resnet50"}
        net = package.create_model(known[name], num_classes=data["num_classes"], in_chans=data["channels"])
    net = net.cuda().train()
    if config.trainer.channels_last:
        net = net.to(memory_format=torch.channels_last)
    mode = config.compile.mode
    compiled = net if mode == "eager" else torch.compile(net, mode=mode, dynamic=config.compile.dynamic)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        # Once anyone in a process marks its steps, as trainkit does, a loop that does not records graphs for ever.
        torch.compiler.cudagraph_mark_step_begin()
        if name == "gpt2":
            return compiled(inputs, targets)[1]
        return cross_entropy(logits_of(compiled(inputs)), targets)

    return Arm({"gpt2": "nanoGPT", "bert": "transformers"}.get(name, "timm"), net, loss, config, batches)


def found(package: str):
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"peer = {package}: {error}; `pip install {package}` beside trainkit") from error


def flops(config: RunConfig, data: DataModule, batches: list) -> int:
    """Of one training step of our network, not compiled."""
    eager = replace(config, compile=replace(config.compile, mode=Mode["eager"]))
    arm = ours(eager, data, batches)
    with FlopCounterMode(display=False) as counter:
        arm.step(0)
    return counter.get_total_flops()


def bytes_moved(warm: Callable[[], None]) -> int | None:
    """What the kernels read and write that inductor makes and calls while `warm` compiles a step; None where this
    torch does not count it."""
    try:
        from torch._inductor import config as inductor
        from torch._inductor import metrics
    except ImportError:
        return None
    log = logging.getLogger("torch._inductor.compile_fx.__inductor_metrics")  # inductor counts for its log alone
    log.setLevel(logging.INFO)
    log.propagate = False
    metrics.reset()
    with inductor.patch(force_disable_caches=True):  # what comes from the cache is not counted
        warm()
    return getattr(metrics, "num_bytes_accessed", 0) or None


def matmul_flops_per_s() -> float:
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / median_ms(lambda: a @ b) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--nanogpt", type=Path)
    parser.add_argument("--modes", default="default,reduce-overhead")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_intermixed_args()
    with cli.one_line_errors():
        if not torch.cuda.is_available():
            raise ConfigError("device = cpu: the comparison is of kernels of a GPU, and no CUDA device was found")
        size = f"experiment=full_size/{given.network}"
        words = [size, "data.num_batches=4", "data.num_val_batches=0", "logger=none", *given.overrides]
        modes = given.modes.split(",")
        configs = [compose_config([*words, f"compile.mode={m}"], Path(__file__).parent.parent / "conf") for m in modes]
        compare(given.network, configs, given.nanogpt, given.rounds)


def compare(name: str, configs: list[RunConfig], nanogpt: Path | None, rounds: int) -> None:
    package = package_of(name, nanogpt)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    data = build_data(configs[0])
    data.setup("fit")
    batches = [(inputs.cuda(), targets.cuda()) for inputs, targets in data.train_dataloader().batches]
    if configs[0].trainer.channels_last:
        batches = [(inputs.contiguous(memory_format=torch.channels_last), targets) for inputs, targets in batches]
    step_flops, matmul, bandwidth = flops(configs[0], data, batches), matmul_flops_per_s(), copy_bytes_per_s()
    print(f"{name} batch {configs[0].data['batch_size']} on {torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"matmul {matmul / 1e12:.0f} TFLOP/s, copy {bandwidth / 1e12:.2f} TB/s, step {step_flops / 1e12:.2f} TFLOP")
    for config in configs:  # each is printed before the next is compiled: that can take minutes, and be cut off
        mine, theirs = pair = ours(config, data, batches), peer(name, config, batches, package)
        moved = None
        if name == "resnet50" and config.compile.mode in ("default", "reduce-overhead"):
            moved = bytes_moved(partial(warmed, mine))  # with tuning that would take minutes: it is without caches
        else:
            warmed(mine)
        warmed(theirs)
        for number in range(rounds):
            for arm in pair if number % 2 else reversed(pair):
                arm.round()
        ratios = [a / b for a, b in zip(mine.round_ms, theirs.round_ms, strict=True)]
        a, b = median(mine.round_ms), median(theirs.round_ms)
        shares = [step_flops / (ms / 1e3) / matmul for ms in (a, b)]
        print(
            f"{config.compile.mode}: {mine.name} {a:.2f} ms ({shares[0]:.1%} of the matmul), "
            f"{theirs.name} {b:.2f} ms ({shares[1]:.1%}), "
            f"ratio {median(ratios):.4f} (min {min(ratios):.4f}, max {max(ratios):.4f})",
            flush=True,
        )
        if moved is not None:
            share = moved / (a / 1e3) / bandwidth
            print(f"  its kernels move {moved / 1e9:.2f} GB a step: {share:.1%} of the copy's bandwidth", flush=True)
        del mine, theirs, pair, arm  # and what their CUDA graphs hold, before the next are built


def warmed(arm: Arm) -> None:
    for number in range(WARM_UP):
        loss = arm.step(number)
    print(f"  {arm.name}: loss {loss.item():.4f} after {WARM_UP} steps", flush=True)


if __name__ == "__main__":
    main()
