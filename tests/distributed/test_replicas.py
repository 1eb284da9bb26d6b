"""Gradients averaged within the compiled graph are those of DDP."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._inductor.utils import run_and_get_code

from tests.conftest import parameters, same
from tests.forked import twice
from trainkit.compiler.compiler import Compiler
from trainkit.config.schema import CompileConfig, DdpConfig, Strategy
from trainkit.distributed.replicas import average_gradients, dims_in_memory, inverse, make_buckets
from trainkit.results.files import read_row

SMALL = (
    "model=gpt2", "model.dim=192", "model.depth=2", "model.num_heads=2", "data=synthetic", "data.vocab_size=1000",
    "data.seq_len=8", "data.batch_size=2", "data.num_batches=6", "data.num_val_batches=2", "trainer.max_epochs=1",
    "compile.backend=aot_eager", "ddp.bucket_cap_mb=1", "amp=bf16", "trainer.gradient_clip_val=0.5", "logger=none",
)  # fmt: skip
QUICK = ("model=simple_net", "trainer.max_epochs=1", "trainer.limit_train_batches=4")
COMPILED = DdpConfig(strategy=Strategy["compiled"], bucket_cap_mb=1)


def test_buckets_begin_with_the_last_parameters_and_hold_one_dtype():
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4), nn.Linear(4, 4).half(), nn.Linear(4, 9))
    net[3].weight.requires_grad = False
    assert list(make_buckets(net.named_parameters(), 100)) == [
        ["3.bias"],
        ["2.bias", "2.weight"],
        ["1.bias", "1.weight"],
        ["0.weight"],
    ]


def test_dimensions_are_put_into_the_order_of_memory_and_back():
    weight = nn.Conv2d(3, 5, 2).to(memory_format=torch.channels_last).weight
    dims = dims_in_memory(weight)
    flat = weight.permute(dims)
    assert flat.is_contiguous()
    assert flat.permute(inverse(dims)).stride() == weight.stride()


def test_two_ranks_train_as_with_ddp(train, tmp_path):
    """To the bit: half of each of two gradients, and a sum of two, do not depend on an order."""
    for strategy in ("ddp", "compiled"):
        done = train(*SMALL, f"ddp.strategy={strategy}", f"hydra.run.dir={strategy}", ranks=2)
        assert done.returncode == 0, done.stderr
    row = read_row(tmp_path / "compiled")
    assert (row.strategy, row.world_size, row.num_graphs, row.num_graph_breaks) == ("compiled", 2, 2, 0)
    assert same(parameters(tmp_path / "compiled"), parameters(tmp_path / "ddp"))


def test_the_network_alone_may_be_compiled(train, tmp_path):
    for strategy in ("ddp", "compiled"):
        words = ("compile.scope=net", "compile.backend=aot_eager", "logger=none", *QUICK)
        done = train(*words, f"ddp.strategy={strategy}", f"hydra.run.dir={strategy}", ranks=2)
        assert done.returncode == 0, done.stderr
        row = read_row(tmp_path / strategy)
        assert (row.status, row.effective_mode, row.strategy) == ("ok", "default", strategy)
    assert same(parameters(tmp_path / "compiled"), parameters(tmp_path / "ddp"))


# Three steps of a network with DDP, and of a copy that averages its gradients itself.
STEPS = """
import copy, sys, torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainkit.config.schema import Compression, DdpConfig, Strategy
from trainkit.distributed.replicas import average_gradients

class Net(nn.Module):
    def __init__(self, breaks):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3)
        self.token = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.token.weight
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))
        self.breaks = breaks

    def forward(self, images, tokens):
        x = self.conv(images).mean((2, 3)) * self.frozen + self.token(tokens)
        if self.breaks:
            torch._dynamo.graph_break()
        return F.cross_entropy(self.head(x), tokens)

dist.init_process_group("gloo")
for breaks, num_batches, compression in ((False, 1, "none"), (True, 1, "none"), (False, 2, "none"), (False, 1, "bf16")):
    torch.manual_seed(0)
    net = Net(breaks).to(memory_format=torch.channels_last)
    replica = copy.deepcopy(net)
    names = list(net.state_dict())
    ddp = DistributedDataParallel(net, find_unused_parameters=True)
    average_gradients(replica, DdpConfig(compression=Compression[compression]))
    replica.compile(backend="aot_eager")
    optimizers = [torch.optim.SGD(module.parameters(), 0.1) for module in (net, replica)]
    torch.manual_seed(dist.get_rank())
    for number in range(3 * num_batches):
        batch = torch.randn(5, 4, 6, 6), torch.randint(10, (5,))
        for module, optimizer in zip((ddp, replica), optimizers):
            module(*batch).backward()
            if (number + 1) % num_batches == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert list(replica.state_dict()) == names
    gathered = [None, None]
    dist.all_gather_object(gathered, replica.state_dict())
    largest = 0.0
    for name, tensor in net.state_dict().items():
        assert torch.equal(gathered[0][name], gathered[1][name])
        largest = max(largest, float((tensor - replica.state_dict()[name]).abs().max()))
    if dist.get_rank() == 0:
        print(largest)
"""


def test_breaks_accumulation_frozen_unused_and_tied_parameters(tmp_path):
    whole, broken, accumulated, compressed = map(float, twice(STEPS, tmp_path))
    assert whole == broken == 0
    assert accumulated < 1e-7  # a sum of averages, where DDP without no_sync averages a sum
    assert 0 < compressed < 1e-3


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512, bias=False) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x.sum()


@pytest.fixture
def process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def calls_in_order(code: str, names: tuple[str, ...]) -> list[str]:
    """Those of the functions with these names that inductor's code calls, one by one."""
    calls = []
    for line in code.splitlines():
        for name in names:
            if f"{name}.default(" in line or f"{name}(" in line:
                calls.append(name)
    return calls


def test_inductor_exchanges_gradients_while_it_computes_others(process_group, needs_compiler):
    net = Layers()
    average_gradients(net, COMPILED)
    with Compiler(CompileConfig()) as compiler:
        compiler.apply(net, COMPILED)
        _, codes = run_and_get_code(lambda: compiler(torch.ones(4, 512)).backward())
    calls = calls_in_order(codes[-1], ("all_reduce_", "wait_tensor", "extern_kernels.mm"))
    assert calls.count("all_reduce_") == 3
    assert "extern_kernels.mm" in calls[calls.index("all_reduce_") : calls.index("wait_tensor")]
