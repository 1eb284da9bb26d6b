"""The training step of trainkit beside that of a well-known implementation, interleaved, on one GPU, in one run.

    python benchmarks/peers.py gpt2 --nanogpt PATH_OF_ITS_REPOSITORY [--modes MODE,...] [--rounds N] [override ...]
    python benchmarks/peers.py vit_b16 | resnet50 (beside timm's) | bert (beside transformers') [...]

The sizes are those of conf/experiment/full_size. Both have the same batches, precision, optimizer and loop. Ours is the
Objective as trainkit compiles it. The peer is its network in torch.compile, with the loss inside (nanoGPT) or after it.
A round is the mean of STEPS steps; the medians over the rounds are printed, and the ratio of the two within a round.
The share of the matmul's speed is the speed of the step's FLOPs, as torch counts them in our network (attention as if
it were not causal), over that of a bfloat16 product of 8192 x 8192 matrices, measured in the same run.
"""

import argparse
import importlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from trainkit.inputs import Batch, Inputs, call, to_device
from trainkit.training.criterion import logits_of
from trainkit.training.model import build_data, build_model
from trainkit.training.objective import build_objective
from trainkit.training.optimizer import build_optimizer

STEPS, WARM_UP = 20, 15
PEERS = {"gpt2": "nanoGPT", "vit_b16": "timm", "resnet50": "timm", "bert": "transformers"}
TIMM_NAMES = {"vit_b16": "vit_base_patch16_224", "resnet50": "resnet50"}
Loss = Callable[[Inputs, Tensor], Tensor]


class Arm:
    """One implementation of the network, its loss and optimizer, and the step times of its rounds."""

    def __init__(self, name: str, net: nn.Module, loss: Loss, config: RunConfig, batches: list[Batch]):
        self.name = name
        self.loss = loss
        self.batches = batches
        self.optimizer = build_optimizer(config)(net)
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
        """Time STEPS steps by the device, after a few that bring it back from the other arm."""
        for number in range(3):
            self.step(number)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for number in range(STEPS):
            self.step(number)
        end.record()
        torch.cuda.synchronize()
        self.round_ms.append(start.elapsed_time(end) / STEPS)


def ours(config: RunConfig, data: DataModule, batches: list[Batch]) -> Arm:
    """Our network and loss in one graph, compiled as `compile.*` says."""
    objective = build_objective(config, build_model(config, data, select_devices(config)))
    compiler = Compiler(config.compile)
    compiler.apply(objective.cuda().train(), config.ddp)
    return Arm("ours", objective, compiler, config, batches)


def import_peer(name: str, nanogpt: Path | None) -> Any:
    """The package, or nanoGPT's module, that has the peer of the network."""
    if name != "gpt2":
        return import_package(PEERS[name])
    if nanogpt is None or not (nanogpt / "model.py").is_file():
        raise ConfigError(f"--nanogpt = {nanogpt}: no model.py in it; give the path of a clone of nanoGPT")
    sys.path.insert(0, str(nanogpt))
    return importlib.import_module("model")


def import_package(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"peer = {package}: {error}; `pip install {package}` beside trainkit") from error


def build_peer(name: str, config: RunConfig, package: Any) -> Any:
    """The peer's network of the same size."""
    data, model = config.data, config.model
    if name == "gpt2":
        sizes = {"n_layer": model["depth"], "n_head": model["num_heads"], "n_embd": model["dim"]}
        sizes |= {"block_size": data["seq_len"], "vocab_size": data["vocab_size"]}
        return package.GPT(package.GPTConfig(dropout=model["dropout"], bias=model["bias"], **sizes))
    if name == "bert":
        sizes = {"vocab_size": data["vocab_size"], "num_labels": data["num_classes"], "hidden_size": model["dim"]}
        sizes |= {"num_hidden_layers": model["depth"], "num_attention_heads": model["num_heads"]}
        sizes |= {"hidden_dropout_prob": model["dropout"], "attention_probs_dropout_prob": model["dropout"]}
        return package.BertForSequenceClassification(package.BertConfig(**sizes))
    return package.create_model(TIMM_NAMES[name], num_classes=data["num_classes"], in_chans=data["channels"])


def peer(name: str, config: RunConfig, batches: list[Batch], package: Any) -> Arm:
    """The peer's network and loss, compiled in the same mode."""
    net = build_peer(name, config, package).cuda().train()
    if config.trainer.channels_last:
        net = net.to(memory_format=torch.channels_last)
    compiled: Callable[..., Any] = net
    mode = config.compile.mode
    if mode != "eager":
        compiled = torch.compile(net, mode=mode, dynamic=config.compile.dynamic)

    def loss(inputs: Inputs, targets: Tensor) -> Tensor:
        # Once anyone in a process marks its steps, as trainkit does, a loop that does not records graphs for ever.
        torch.compiler.cudagraph_mark_step_begin()
        if name == "gpt2":
            return compiled(inputs, targets)[1]
        return cross_entropy(logits_of(call(compiled, inputs)), targets)

    return Arm(PEERS[name], net, loss, config, batches)


def step_flops(config: RunConfig, data: DataModule, batches: list[Batch]) -> int:
    """The FLOPs of one training step of our network, not compiled."""
    eager = replace(config, compile=replace(config.compile, mode=Mode["eager"]))
    arm = ours(eager, data, batches)
    with FlopCounterMode(display=False) as counter:
        arm.step(0)
    return counter.get_total_flops()


def count_bytes_moved(warm_up: Callable[[], None]) -> int | None:
    """The bytes that inductor's kernels for a step read and write, counted while `warm_up` compiles it.

    None if this torch does not count them.
    """
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
        warm_up()
    return getattr(metrics, "num_bytes_accessed", 0) or None


def matmul_flops_per_s() -> float:
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / median_ms(lambda: a @ b) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=tuple(PEERS))
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--nanogpt", type=Path)
    parser.add_argument("--modes", default="default,reduce-overhead")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_intermixed_args()
    with cli.one_line_errors():
        if not torch.cuda.is_available():
            raise ConfigError("device = cpu: the comparison is of kernels of a GPU, and no CUDA device was found")
        overrides = [f"experiment=full_size/{options.network}", "data.num_batches=4", "data.num_val_batches=0"]
        overrides += ["logger=none", *options.overrides]
        conf = Path(__file__).parent.parent / "conf"
        configs = [compose_config([*overrides, f"compile.mode={mode}"], conf) for mode in options.modes.split(",")]
        compare(options.network, configs, options.nanogpt, options.rounds)


def compare(name: str, configs: list[RunConfig], nanogpt: Path | None, num_rounds: int) -> None:
    """Train both in each mode in turn, and print their step times."""
    package = import_peer(name, nanogpt)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    data = build_data(configs[0])
    data.setup("fit")
    batches = batches_on_device(data, configs[0].trainer.channels_last)
    speeds = Speeds(step_flops(configs[0], data, batches), matmul_flops_per_s(), copy_bytes_per_s())
    print(f"{name} batch {configs[0].data['batch_size']} on {torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(
        f"matmul {speeds.matmul_flops_per_s / 1e12:.0f} TFLOP/s, copy {speeds.copy_bytes_per_s / 1e12:.2f} TB/s, "
        f"step {speeds.step_flops / 1e12:.2f} TFLOP"
    )
    for config in configs:  # each is printed before the next is compiled: that can take minutes, and be cut off
        mode = config.compile.mode
        our_arm, peer_arm = ours(config, data, batches), peer(name, config, batches, package)
        bytes_moved = None
        if name == "resnet50" and mode in ("default", "reduce-overhead"):
            # Not with autotuning, which would take minutes: caches are off while bytes are counted.
            bytes_moved = count_bytes_moved(partial(warm_up, our_arm))
        else:
            warm_up(our_arm)
        warm_up(peer_arm)
        interleave(our_arm, peer_arm, num_rounds)
        print_comparison(mode, our_arm, peer_arm, speeds)
        if bytes_moved is not None:
            share = bytes_moved / (median(our_arm.round_ms) / 1e3) / speeds.copy_bytes_per_s
            print(
                f"  its kernels move {bytes_moved / 1e9:.2f} GB a step: {share:.1%} of the copy's bandwidth", flush=True
            )
        del our_arm, peer_arm  # and the memory that their CUDA graphs hold, before the next are built


@dataclass(frozen=True)
class Speeds:
    """The work of a step and the speeds that the device reaches in a matmul and a copy."""

    step_flops: int
    matmul_flops_per_s: float
    copy_bytes_per_s: float

    def matmul_share(self, step_ms: float) -> float:
        return self.step_flops / (step_ms / 1e3) / self.matmul_flops_per_s


def batches_on_device(data: DataModule, channels_last: bool) -> list[Batch]:
    batches = []
    for batch in data.train_dataloader().batches:
        inputs, targets = to_device(batch, torch.device("cuda"))
        if channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        batches.append((inputs, targets))
    return batches


def warm_up(arm: Arm) -> None:
    for number in range(WARM_UP):
        loss = arm.step(number)
    print(f"  {arm.name}: loss {loss.item():.4f} after {WARM_UP} steps", flush=True)


def interleave(our_arm: Arm, peer_arm: Arm, num_rounds: int) -> None:
    """Each round begins with the arm that the round before it ended with."""
    for number in range(num_rounds):
        if number % 2:
            our_arm.round()
            peer_arm.round()
        else:
            peer_arm.round()
            our_arm.round()


def print_comparison(mode: str, our_arm: Arm, peer_arm: Arm, speeds: Speeds) -> None:
    ratios = [our_ms / peer_ms for our_ms, peer_ms in zip(our_arm.round_ms, peer_arm.round_ms, strict=True)]
    our_ms, peer_ms = median(our_arm.round_ms), median(peer_arm.round_ms)
    print(
        f"{mode}: {our_arm.name} {our_ms:.2f} ms ({speeds.matmul_share(our_ms):.1%} of the matmul), "
        f"{peer_arm.name} {peer_ms:.2f} ms ({speeds.matmul_share(peer_ms):.1%}), "
        f"ratio {median(ratios):.4f} (min {min(ratios):.4f}, max {max(ratios):.4f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
