"""Each workaround for torch, Lightning or W&B is still needed. If one of these tests fails, remove its workaround."""

import inspect
import time

import torch
import torch._dynamo
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests import forked
from trainkit.compiler.private_names import SUPPORTED


def test_lightning_wraps_with_ddp_on_a_side_stream():
    """distributed.strategies.TrainingDDP._setup_model; https://github.com/Lightning-AI/pytorch-lightning/pull/21746"""
    assert "torch.cuda.Stream()" in inspect.getsource(DDPStrategy._setup_model)


def test_a_torch_is_supported_whose_workers_have_a_ptxas_of_their_own():
    """compiler.inductor.use_ptxas_of_workers"""
    oldest = SUPPORTED.split(",")[0].removeprefix(">=")
    assert oldest in ("2.11", "2.12")


def test_torch_compile_skips_the_frames_of_torchs_own_classes():
    """compiler.apply._module_function, and apply.check_network for compile.scope=net"""
    net = nn.Sequential(nn.Linear(2, 2))
    net.compile(backend="eager", fullgraph=False)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    net(torch.ones(1, 2))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


def test_fused_sgd_takes_its_momentum_from_memory_that_it_never_wrote():
    """training.optimizer._fused_loses_momentum"""
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, fused=True)
    torch.use_deterministic_algorithms(True)  # fills such memory with NaN
    try:
        for optimizer.found_inf in (torch.ones(()), torch.zeros(())):  # as a GradScaler skips the first step
            weight.grad = torch.ones(4)
            optimizer.step()
    finally:
        torch.use_deterministic_algorithms(False)
    assert weight.isnan().all()


def test_lightning_hands_wandb_an_argument_that_it_dropped():
    """training.logger.build_loggers"""
    assert "anonymous" in WandbLogger(offline=True)._wandb_init


def test_torch_remembers_first_calls_when_it_is_reset():
    """compiler.dynamo.eager_then_compile"""

    def graphs_of_a_first_call() -> int:
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        with torch.compiler.set_stance("eager_then_compile"):
            torch.compile(_doubled, backend="eager")(torch.ones(2))
        return torch._dynamo.utils.counters["stats"]["unique_graphs"]

    assert [graphs_of_a_first_call(), graphs_of_a_first_call()] == [0, 1]


def _doubled(x):
    return x * 2


def test_torchs_cache_gives_attention_the_code_of_another_kernel():
    """compiler.caches._attention_in_keys"""

    def attend(q):
        return nn.functional.scaled_dot_product_attention(q, q, q).sum()

    q = torch.randn(1, 2, 24, 8, requires_grad=True)
    hits, tag = [], str(time.time())
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        # The tag lets nothing be found of earlier runs.
        with sdpa_kernel(backend), torch.compiler.config.patch(cache_key_tag=tag):
            torch.compile(attend)(q).backward()
        hits.append(torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"])
    assert hits == [0, 1]


def test_torch_compiles_anew_for_tensors_of_inference_mode():
    """inference.cascade.CascadeStage.ready; https://github.com/pytorch/pytorch/issues/134249"""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    made_outside = torch.ones(2)
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with torch.inference_mode():
        compiled(compiled(made_outside))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_backward_reads_a_buffer_that_forward_has_changed_since():
    """diagnosis.remedies, trainkit.models.attribute_counter; https://github.com/pytorch/pytorch/pull/197039"""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.register_buffer("n", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.n += 1
            return ((self.weight * x).relu() * (self.n / (self.n + 1))).sum()

    gradients = []
    for backend in (None, "aot_eager"):
        torch._dynamo.reset()
        net = Counting()
        if backend:
            net.compile(backend=backend)
        net(torch.ones(2)).backward()
        gradients.append(net.weight.grad)
    assert gradients[0].tolist() != gradients[1].tolist()


def test_after_a_restart_of_torchrun_a_rank_finds_the_keys_of_the_rank_before_it(tmp_path):
    """distributed/restarts.py: `meeting_apart`. Fails when torch separates the attempts: remove that then."""
    script = tmp_path / "keys.py"
    script.write_text("""
import os, sys, torch.distributed as dist
from tests.forked import together

store, _, _ = next(dist.rendezvous("env://"))
restarted = os.environ["TORCHELASTIC_RESTART_COUNT"] == "1"
if os.environ["RANK"] == "0":
    print("key of the rank before:", store.check(["key"]), flush=True)
    store.set("key", "value")
together()  # else the end of one rank may stop the other before it has got here
sys.exit(not restarted)
""")
    done = forked.python(script, cwd=tmp_path, ranks=2, max_restarts=1)
    assert done.stdout.splitlines() == ["key of the rank before: False", "key of the rank before: True"], done.stderr


def test_torch_caches_no_graph_with_an_autograd_function_by_default():
    """CACHED in trainkit/compiler/compiler.py can go when it does."""
    assert torch._functorch.config.autograd_cache_allow_custom_autograd_functions is False


def test_torchs_agent_waits_forever_for_a_forked_rank_that_is_killed_late():
    """sweep.torchrun.ForkedRank"""
    assert "died on event.wait() calling set() method will deadlock" in inspect.getsource(MultiprocessContext)
