"""Ranks that each update their share of the parameters train as with DDP."""

import re

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code

from tests.conftest import parameters, same
from tests.distributed.test_replicas import COMPILED, SMALL, Layers, calls_in_order, process_group  # noqa: F401
from tests.forked import twice
from trainkit.compiler.compiler import Compiler
from trainkit.config.errors import ConfigError
from trainkit.config.schema import CompileConfig
from trainkit.distributed.buckets import ALIGNMENT, lay_out
from trainkit.distributed.sharded_optimizer import OptimizerShards, _cast_by_autocast
from trainkit.results.files import read_row
from trainkit.training.optimizer import build_optimizer

UNCLIPPED = (*SMALL, "trainer.gradient_clip_val=null")  # a norm is a sum in another order
SHARDED = ("ddp.strategy=compiled", "ddp.shard_optimizer=true")


def optimizer_state(run_dir, name: str = "last") -> dict:
    checkpoint = torch.load(run_dir / "checkpoints" / f"{name}.ckpt", weights_only=True)
    return checkpoint["optimizer_states"][0]


def flat_state(state: dict) -> dict[str, torch.Tensor]:
    return {f"{key} {name}": value for key, values in state["state"].items() for name, value in values.items()}


def test_two_ranks_train_as_with_ddp_and_go_on_from_each_others_checkpoints(train, tmp_path):
    """To the bit: half of each of two gradients does not depend on an order."""
    ddp = ("ddp.strategy=ddp",)
    two_epochs = ("trainer.max_epochs=2", "checkpoint.save_top_k=-1")  # each epoch's checkpoint is kept
    _run_on_two_ranks(train, *ddp, *two_epochs, "hydra.run.dir=ddp")
    (begun_path,) = (tmp_path / "ddp" / "checkpoints").glob("best-0-*.ckpt")
    begun = f"ddp/checkpoints/{begun_path.name}"
    _run_on_two_ranks(train, *SHARDED, "hydra.run.dir=sharded")
    assert read_row(tmp_path / "sharded").strategy == "compiled"
    assert same(parameters(tmp_path / "sharded"), parameters(tmp_path / "ddp", begun_path.stem))
    states = [optimizer_state(tmp_path / "sharded"), optimizer_state(tmp_path / "ddp", begun_path.stem)]
    assert same(*map(flat_state, states))
    assert states[0]["param_groups"] == states[1]["param_groups"]
    for name, path, settings in (("a", begun, SHARDED), ("b", "sharded/checkpoints/last.ckpt", ddp)):
        resume = ("trainer.max_epochs=2", f"ckpt_path={path}", f"hydra.run.dir={name}")
        _run_on_two_ranks(train, *settings, *resume)
        assert same(parameters(tmp_path / name), parameters(tmp_path / "ddp"))


def _run_on_two_ranks(train, *words: str) -> None:
    done = train(*UNCLIPPED, *words, ranks=2)
    assert done.returncode == 0, done.stderr


def test_the_check_compares_whole_gradients_and_the_norm_is_of_all(train, tmp_path):
    norms = []
    for name, settings in (("ddp", ("ddp.strategy=ddp",)), ("sharded", (*SHARDED, "check=true"))):
        logged = ("logger=csv", "trainer.log_every_n_steps=1", "trainer.limit_val_batches=0", "amp=off")
        done = train(*SMALL, *logged, *settings, f"hydra.run.dir={name}", ranks=2)
        assert done.returncode == 0, done.stderr
        (metrics,) = (tmp_path / name).rglob("metrics.csv")
        header, *lines = metrics.read_text().splitlines()
        column = header.split(",").index("step/grad_norm")
        norms.append([float(line.split(",")[column]) for line in lines if line.split(",")[column]])
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    row = read_row(tmp_path / "sharded")
    assert (row.check_gradients_agree, row.check_graphs_agree, row.check_ranks_reason) == (True, True, None)


# Three steps of a network with DDP, and of a copy whose optimizer has a share of each of two groups.
STEPS = """
import copy, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tests.distributed.test_sharded_optimizer import Net
from trainkit.config.schema import Compression, DdpConfig
from trainkit.distributed.sharded_optimizer import OptimizerShards

def groups(net):
    matrices = [parameter for parameter in net.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in net.parameters() if parameter.ndim <= 1]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": others}]

dist.init_process_group("gloo")
for breaks, num_batches, compression in ((False, 1, "none"), (True, 1, "none"), (False, 2, "none"), (False, 1, "bf16")):
    torch.manual_seed(0)
    net = Net(breaks).to(memory_format=torch.channels_last)
    replica = copy.deepcopy(net)
    strides = {name: tensor.stride() for name, tensor in net.state_dict().items()}
    ddp = DistributedDataParallel(net, find_unused_parameters=True)
    shards = OptimizerShards(replica, DdpConfig(compression=Compression[compression]), None)
    replica.compile(backend="aot_eager")
    optimizers = [torch.optim.SGD(groups(module), 0.1, momentum=0.9) for module in (net, replica)]
    shards.divide(optimizers[1])
    torch.manual_seed(dist.get_rank())
    for number in range(3 * num_batches):
        batch = torch.randn(5, 4, 6, 6), torch.randint(10, (5,))
        for module, optimizer in zip((ddp, replica), optimizers):
            module(*batch).backward()
            if (number + 1) % num_batches == 0:
                optimizer.step()
                optimizer.zero_grad()
    state = replica.state_dict()
    assert {name: tensor.stride() for name, tensor in state.items()} == strides
    largest = max(float((tensor - state[name]).abs().max()) for name, tensor in net.state_dict().items())
    if dist.get_rank() == 0:
        print(largest)
"""


class Net(nn.Module):
    def __init__(self, breaks: bool):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3)
        self.token = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.token.weight
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))
        self.scale = nn.Parameter(torch.ones(()))
        self.breaks = breaks

    def forward(self, images, tokens):
        x = self.conv(images).mean((2, 3)) * self.frozen + self.token(tokens) * self.scale
        if self.breaks:
            torch._dynamo.graph_break()
        return nn.functional.cross_entropy(self.head(x), tokens)


def test_breaks_accumulation_groups_frozen_unused_and_tied_parameters(tmp_path):
    whole, broken, accumulated, compressed = map(float, twice(STEPS, tmp_path))
    assert whole == broken == 0
    assert accumulated < 1e-6  # a sum of averages, where DDP without no_sync averages a sum
    assert 0 < compressed < 1e-2


def test_parameters_begin_at_aligned_places():
    layout = lay_out([torch.empty(3), torch.empty(2, 5).T.contiguous().T], group_size=2)
    parts = [torch.arange(3.0), torch.arange(10.0).view(2, 5)]
    whole = layout.join(parts)
    assert whole.shape == (2 * ALIGNMENT,)
    bias, weight = layout.split(whole)
    assert same({"bias": bias, "weight": weight}, dict(zip(("bias", "weight"), parts, strict=True)))
    assert (weight.storage_offset(), weight.stride()) == (ALIGNMENT, (1, 2))


def test_only_what_autocast_casts_everywhere_is_gathered_in_its_type():
    net = Net(breaks=False)
    assert _cast_by_autocast(net) == {net.conv.weight, net.conv.bias}  # the head's weight is an embedding, too


def test_inductor_copies_no_gathered_parameter_and_computes_while_it_gathers(process_group, needs_compiler):  # noqa: F811
    net = Layers()
    shards = OptimizerShards(net, COMPILED, None)
    shards.divide(torch.optim.SGD(net.parameters(), 0.1))
    with Compiler(CompileConfig()) as compiler:
        compiler.apply(net, COMPILED)
        _, codes = run_and_get_code(lambda: compiler(torch.ones(4, 512)).backward())
    forward, backward = codes[0], codes[-1]
    assert len(re.findall(r"all_gather_into_tensor(_out)?\.default\(", forward)) == 3
    assert backward.count("reduce_scatter_tensor.default(") == 3
    assert not re.search(r"empty_strided_cpu\(\(512, 512\)", forward)
    # The second layer's parameters are waited for when the first one is done.
    assert calls_in_order(forward, ("wait_tensor", "extern_kernels.mm")) == ["wait_tensor", "extern_kernels.mm"] * 3


def test_a_second_fit_begins_with_the_parameters_that_the_first_one_left(process_group):  # noqa: F811
    """On a GPU Lightning moves them to the CPU in between."""
    net, plain = Layers(), Layers()
    shards = OptimizerShards(net, COMPILED, None)
    shards.divide(torch.optim.SGD(net.parameters(), 0.1))
    for parameter, moved in zip(net.parameters(), plain.parameters(), strict=True):
        parameter.data = moved.detach().clone()
    optimizers = [torch.optim.SGD(module.parameters(), 0.1) for module in (net, plain)]
    shards.divide(optimizers[0])
    for module, optimizer in zip((net, plain), optimizers, strict=True):
        module(torch.ones(4, 512)).backward()
        optimizer.step()
    assert same(net.state_dict(), plain.state_dict())


def test_an_optimizer_that_needs_whole_matrices_is_refused(compose):
    with pytest.raises(ConfigError, match=r"^ddp\.shard_optimizer = true: .* MuonAndAdamW may need whole ones; use"):
        build_optimizer(compose(*SHARDED, "optimizer=muon"))
