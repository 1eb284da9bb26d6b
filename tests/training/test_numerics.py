"""Does the asked mode compute what eager computes? On real networks, and on some that are compiled wrongly."""

import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo import register_backend

from tests.networks import Blocks, Plain
from trainkit.config.schema import MatmulPrecision, Mode, Precision, RunConfig, Scope
from trainkit.models.mini_transformer import MiniTransformer
from trainkit.models.resnet18 import BasicBlock
from trainkit.models.simple_cnn import SimpleCNN
from trainkit.training import numerics
from trainkit.training.numerics import STEPS, Answer, same_answer
from trainkit.training.run import run


def maker(optimizer, **settings):
    """The optimizer of a network's parameters, as build_optimizer makes it."""
    return lambda net: optimizer(net.parameters(), **settings)


ADAMW = maker(torch.optim.AdamW, lr=2e-3, fused=True)
SGD = maker(torch.optim.SGD, lr=0.05, momentum=0.9)


@pytest.fixture(autouse=True)
def nothing_is_compiled():
    """As run() does: code that was compiled before is dropped."""
    torch._dynamo.reset()
    torch.manual_seed(0)


def asked(mode="default", backend="aot_eager", precision="32-true", **settings) -> RunConfig:
    config = RunConfig()
    config.compile.mode, config.compile.backend = Mode[mode], backend
    config.amp.precision = Precision[precision]
    config.amp.matmul_precision = MatmulPrecision["highest" if precision == "32-true" else "high"]
    for name, value in settings.items():
        setattr(config.compile if hasattr(config.compile, name) else config.trainer, name, value)
    return config


def images(num: int = STEPS, channels: int = 1) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(16, channels, 8, 8), torch.randint(0, 10, (16,))) for _ in range(num)]


def tokens(num: int = STEPS) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randint(0, 100, (4, 16)), torch.randint(0, 100, (4, 16))) for _ in range(num)]


def answer(net: nn.Module, config: RunConfig, batches=None, optimizer=ADAMW) -> Answer:
    return same_answer(net, batches or images(), config, optimizer, torch.device("cpu"))


def plain(kind: type[Plain] = Plain) -> Plain:
    return kind(channels=1, image_size=8, num_classes=10, width=8)


NETWORKS = {
    "simple_cnn": (lambda: SimpleCNN(1, 8, 10, width=8), images),
    "residual": (lambda: nn.Sequential(BasicBlock(1, 8, stride=2), nn.Flatten(), nn.Linear(8 * 4 * 4, 10)), images),
    "mini_transformer": (lambda: MiniTransformer(100, 16, 100, next_token=True, dim=32, depth=1), tokens),
}


@pytest.fixture(params=NETWORKS)
def network(request):
    make, batches = NETWORKS[request.param]
    return make(), batches()


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("optimizer", [ADAMW, SGD], ids=["adamw", "sgd"])
def test_compiled_networks_give_the_same_answer(network, precision, optimizer):
    net, batches = network
    found = answer(net, asked(precision=precision), batches, optimizer)
    assert (found.check_passed, found.check_reason) == (True, None)
    # The same kernels as eager's.
    assert found.check_loss_rel_diff == pytest.approx(found.check_eager_loss_rel_diff, rel=0.5, abs=1e-7)
    assert found.check_grad_rel_diff == pytest.approx(found.check_eager_grad_rel_diff, rel=0.5)
    least, most = {"32-true": (0, 1e-6), "16-mixed": (1e-7, 1e-3), "bf16-mixed": (1e-6, 1e-2)}[precision]
    assert least <= found.check_eager_loss_rel_diff <= most


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_inductors_code_gives_the_same_answer(network, precision, needs_compiler):
    net, batches = network
    found = answer(net, asked(backend="inductor", precision=precision), batches)
    assert (found.check_passed, found.check_reason) == (True, None)
    assert 0 < found.check_loss_rel_diff < (1e-5 if precision == "32-true" else 1e-2)
    assert found.check_grad_rel_diff > 0
    assert found.check_param_rel_diff > 0


def test_eager_is_its_own_yardstick():
    found = answer(plain(), asked(mode="eager"))
    assert found.check_passed is True
    assert 0 < found.check_loss_rel_diff < 1e-6
    assert 0 < found.check_grad_rel_diff < 1e-5
    assert 0 < found.check_param_rel_diff < 1e-5
    ours = (found.check_loss_rel_diff, found.check_grad_rel_diff, found.check_param_rel_diff)
    assert ours == (found.check_eager_loss_rel_diff, found.check_eager_grad_rel_diff, found.check_eager_param_rel_diff)


def test_settings_of_the_compiler_are_those_asked_for():
    backend = Spy()
    found = answer(plain(), asked(backend=backend.name, scope=Scope.net, dynamic=True, fullgraph=True))
    assert found.check_passed is True
    assert backend.num_graphs == 1
    assert not any(node.target is F.cross_entropy for node in backend.nodes)  # the net alone
    assert answer(Prints(1, 8, 10, 8), asked(fullgraph=True)).check_passed is None


# What is compiled wrongly


class Spy:
    """A backend that runs what it gets, and remembers it. `change` may spoil a graph or its outputs before."""

    def __init__(self):
        self.name, self.num_graphs, self.nodes = f"spy_{id(self)}", 0, []
        register_backend(self, name=self.name)

    def __call__(self, graph, inputs):
        self.num_graphs += 1
        self.nodes += graph.graph.nodes
        return self.change(graph)

    def change(self, graph):
        return graph.forward


class Scales(Spy):
    """What a graph returns is 0.1 % too large."""

    def change(self, graph):
        return lambda *inputs: [output * 1.001 for output in graph(*inputs)]


class DropsBias(Spy):
    """Linear layers lose their bias."""

    def change(self, graph):
        for node in graph.graph.nodes:
            if node.target is F.linear:
                node.args = (*node.args[:2], None)
        graph.recompile()
        return graph.forward


class OutOfMemory(Spy):
    def change(self, graph):
        raise torch.OutOfMemoryError("CUDA out of memory.")


class Prints(Plain):
    def forward(self, images: Tensor) -> Tensor:
        print(end="")
        return super().forward(images)


class ScaledWhenCompiled(Plain):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * (1.001 if torch.compiler.is_compiling() else 1)


class HalvesGradient(torch.autograd.Function):
    """The identity, whose gradient is halved when compiled."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (0.5 if torch.compiler.is_compiling() else 1)


class GradientHalvedWhenCompiled(Plain):
    def forward(self, images: Tensor) -> Tensor:
        return HalvesGradient.apply(super().forward(images))


class GradientHalvedOnce(Plain):
    """When compiled, and in the batch whose first pixel is 7."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        share = torch.where(images.flatten()[0] == 7, 0.5, 1.0) if torch.compiler.is_compiling() else 1.0
        return logits * share + (logits * (1 - share)).detach()


class Corner(Plain):
    """Has a weight at the corner of a ReLU; compiled code rounds it to the other side."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.edge = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        rounding = 2e-7 if torch.compiler.is_compiling() else 0.0
        return super().forward(images) * (1 + F.relu(self.edge - 1 + rounding))


class Counts(Plain):
    """Counts its calls; twice when compiled."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mask", torch.full((3,), float("-inf")))

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 2 if torch.compiler.is_compiling() else 1
        return super().forward(images)


class Clamps(Plain):
    """Keeps its weights small, unless compiled."""

    def forward(self, images: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            with torch.no_grad():
                self.fc.weight.clamp_(-0.01, 0.01)
        return super().forward(images)


class NotFiniteWhenCompiled(Plain):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) + (float("nan") if torch.compiler.is_compiling() else 0)


class NotFinite(Plain):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) + float("inf")


@pytest.mark.parametrize("backend", [Scales, DropsBias])
def test_a_backend_that_computes_something_else_does_not_pass(backend):
    found = answer(plain(), asked(backend=backend().name, scope=Scope.net))
    assert found.check_passed is False
    assert found.check_reason == (
        f"losses differ from float64 by {found.check_loss_rel_diff:.1e}, "
        f"eager's by {found.check_eager_loss_rel_diff:.1e}"
    )
    assert found.check_loss_rel_diff > 1e-5 > found.check_eager_loss_rel_diff


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_gradient_that_is_wrong_when_compiled_does_not_pass(precision):
    found = answer(plain(GradientHalvedWhenCompiled), asked(precision=precision))
    assert found.check_passed is False
    assert found.check_reason.startswith("gradients of fc.")
    assert "differ from float64 by 5.0e-01, eager's by " in found.check_reason
    assert found.check_loss_rel_diff == pytest.approx(found.check_eager_loss_rel_diff, rel=0.5, abs=1e-7)
    assert found.check_grad_rel_diff == pytest.approx(0.5, rel=0.05)
    assert found.check_eager_grad_rel_diff < 0.05


def test_a_gradient_that_jumps_in_one_step_passes_and_is_told():
    batches = images()
    batches[2][0][0, 0, 0, 0] = 7
    found = answer(plain(GradientHalvedOnce), asked(), batches)
    assert found.check_passed is True
    assert found.check_grad_rel_diff == pytest.approx(0.5, rel=0.05)
    for inputs, _ in batches[:3]:
        inputs[0, 0, 0, 0] = 7
    torch._dynamo.reset()
    assert answer(plain(GradientHalvedOnce), asked(), batches).check_passed is False


def test_rounding_across_a_corner_passes(monkeypatch):
    net = plain(Corner)
    found = answer(net, asked(), optimizer=SGD)
    assert found.check_passed is True
    assert found.check_grad_rel_diff > 0.01 > found.check_eager_grad_rel_diff
    monkeypatch.setattr(numerics, "JITTER", 0.0)
    torch._dynamo.reset()
    found = answer(net, asked(), optimizer=SGD)
    assert found.check_passed is False
    assert found.check_reason.startswith("gradients of edge differ from float64 by ")


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (ScaledWhenCompiled, "losses differ from float64 by "),
        (Counts, "buffers of calls differ from float64 by 1.0e+00, eager's by 0.0e+00"),
        (Clamps, "losses differ from float64 by "),
        (NotFiniteWhenCompiled, "losses are not finite in step 1, eager's are"),
    ],
)
def test_a_network_that_computes_something_else_when_compiled_does_not_pass(net, reason):
    found = answer(plain(net), asked())
    assert found.check_passed is False
    assert found.check_reason.startswith(reason)


def test_figures_that_are_not_finite_are_none():
    found = answer(plain(NotFiniteWhenCompiled), asked())
    assert found.check_loss_rel_diff is found.check_grad_rel_diff is found.check_param_rel_diff is None
    assert found.check_eager_loss_rel_diff < 1e-6


# What has no yardstick


class FunctionalDropout(Plain):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(F.dropout(images, 0.1, self.training))


class NumpyNoise(Plain):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images * float(np.random.rand()))


class PythonNoise(Plain):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images * random.random())


class Shared(Plain):
    """Computes what depends on the calls of all copies."""

    calls = 0

    def forward(self, images: Tensor) -> Tensor:
        Shared.calls += 1
        return super().forward(images) * 4 ** (Shared.calls % 3)


class OnlyFloat32(Plain):
    def forward(self, images: Tensor) -> Tensor:
        assert images.dtype == torch.float32, "no kernel for float64"
        return super().forward(images)


class Interrupted(Plain):
    def forward(self, images: Tensor) -> Tensor:
        raise KeyboardInterrupt


class AllDropouts(Plain):
    """Drops by modules of torch.nn alone."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
        self.recurrent = nn.GRU(8, 8, num_layers=2, dropout=0.5, batch_first=True)
        self.drop = nn.Sequential(nn.Dropout(0.5), nn.AlphaDropout(0.5))

    def forward(self, images: Tensor) -> Tensor:
        rows = images.flatten(0, 1)
        rows = rows + self.attention(rows, rows, rows)[0]
        return super().forward(self.drop(self.recurrent(rows)[0]))


@pytest.mark.parametrize("net", [FunctionalDropout, NumpyNoise, PythonNoise])
def test_a_network_that_draws_random_numbers_has_no_yardstick(net):
    drawn = "the network draws random numbers outside of torch.nn's dropout: modes draw others"
    assert answer(plain(net), asked()) == Answer(None, drawn)


@pytest.mark.parametrize("mode", ["default", "eager"])
def test_an_eager_mode_far_from_float64_is_no_yardstick(mode):
    found = answer(plain(Shared), asked(mode=mode))
    assert found.check_passed is None
    assert found.check_reason.startswith("eager's own losses differ from float64 by ")
    assert found.check_reason.endswith(": no yardstick")
    assert found.check_eager_loss_rel_diff > 0.25


def test_dropout_of_torchs_modules_is_off():
    assert answer(plain(AllDropouts), asked()).check_passed is True
    assert answer(MiniTransformer(100, 16, 100, True, dim=32, dropout=0.1), asked(), tokens()).check_passed is True


def test_an_eager_mode_that_is_not_finite_is_no_yardstick():
    found = answer(plain(NotFinite), asked())
    assert (found.check_passed, found.check_reason) == (None, "eager's own losses are not finite in step 1")


def test_a_copy_that_cannot_be_trained_is_a_reason_and_no_exception():
    found = answer(plain(OnlyFloat32), asked())
    assert found == Answer(None, "the copy in float64 could not be trained: AssertionError: no kernel for float64")
    found = answer(plain(), asked(backend=OutOfMemory().name))
    assert found.check_passed is None
    assert found.check_reason.startswith("the copy in default could not be trained: ")
    assert "CUDA out of memory." in found.check_reason


def test_without_a_batch_nobody_can_tell():
    assert same_answer(plain(), [], asked(), ADAMW, torch.device("cpu")) == Answer(None, "no batch to compare on")


def test_ctrl_c_ends_it():
    with pytest.raises(KeyboardInterrupt):
        answer(plain(Interrupted), asked())


# What it trains like, and what it leaves behind


class BiasBeforeNorm(Plain):
    """Has a bias whose true gradient is zero, an infinite buffer, a frozen and an unused parameter."""

    def __init__(self, **sizes: int):
        super().__init__(**sizes)
        self.conv, self.norm = nn.Conv2d(1, 1, 3, padding=1), nn.BatchNorm2d(1)
        self.frozen = nn.Parameter(torch.randn(1, 1, 8, 8), requires_grad=False)
        self.unused = nn.Parameter(torch.randn(3))
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(F.relu(self.norm(self.conv(images))) + self.frozen + self.mask[0])


class MakesTensors(Plain):
    """Multiplies by a matrix that it makes in its forward."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images @ torch.eye(8))


@pytest.mark.parametrize("net", [BiasBeforeNorm, MakesTensors])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_networks_with_peculiar_tensors_pass(net, backend, needs_compiler):
    found = answer(plain(net), asked(backend=backend))
    assert (found.check_passed, found.check_reason) == (True, None)
    assert found.check_eager_grad_rel_diff < 1e-4  # of a bias before BatchNorm too


def test_blocks_are_checkpointed_as_in_the_run():
    net = MiniTransformer(100, 16, 100, next_token=True, dim=32)
    assert answer(net, asked(activation_checkpointing=True), tokens()).check_passed is True
    # Where eager recomputes a BatchNorm it updates the statistics again; compiled code does so once.
    found = answer(plain(Blocks), asked(activation_checkpointing=True))
    assert found.check_passed is False
    assert found.check_reason.startswith("buffers of blocks.0.1.num_batches_tracked differ from float64 by 5.0e-01")


def test_few_batches_of_several_shapes_are_enough():
    inputs, targets = images(1)[0]
    found = answer(plain(), asked(), [(inputs, targets), (inputs[:3], targets[:3])])
    assert found.check_passed is True
    wrong = answer(plain(ScaledWhenCompiled), asked(), [(inputs, targets)])
    assert wrong.check_passed is False


class Seen(torch.optim.SGD):
    """Remembers the gradient's norm and the learning rate of every step, and of which dtype."""

    steps: list[tuple[torch.dtype, float, float]]

    def step(self, closure=None):
        group = self.param_groups[0]
        norm = torch.cat([parameter.grad.flatten() for parameter in group["params"]]).norm()
        type(self).steps.append((norm.dtype, float(norm), group["lr"]))
        return super().step(closure)


def test_gradients_are_clipped_and_the_learning_rate_warms_up_as_in_the_run():
    Seen.steps = []
    found = answer(plain(), asked(gradient_clip_val=0.01, warmup_steps=4), images(3), maker(Seen, lr=1.0))
    assert found.check_passed is True
    assert [lr for _, _, lr in Seen.steps] == [0.25, 0.5, 0.75] * 4
    assert [dtype for dtype, _, _ in Seen.steps] == [torch.float64] * 3 + [torch.float32] * 9
    assert [norm for _, norm, _ in Seen.steps] == pytest.approx([0.01] * 12, rel=1e-3)
    assert found.check_grad_rel_diff < 1e-5  # of the gradients before they are clipped


def test_more_batches_than_enough_are_left_alone():
    Seen.steps = []
    assert answer(plain(), asked(mode="eager"), images(STEPS + 2), maker(Seen, lr=0.1)).check_passed is True
    assert len(Seen.steps) == 3 * STEPS


def test_nothing_else_is_changed():
    net = plain(BiasBeforeNorm).eval()
    before = copy.deepcopy(net)
    batches = images()
    drawing, only_float32 = plain(FunctionalDropout).eval(), plain(OnlyFloat32)
    precision = torch.get_float32_matmul_precision()  # a run in this process leaves its own
    states = torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()
    assert answer(net, asked(), batches).check_passed is True
    assert answer(drawing, asked(), batches).check_passed is None
    assert answer(only_float32, asked(), batches).check_passed is None
    assert (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()) == states
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_float32_matmul_precision() == precision
    assert not torch.is_autocast_enabled("cpu")
    assert not net.training
    for (name, after), (same, tensor) in zip(net.state_dict().items(), before.state_dict().items(), strict=True):
        assert name == same
        assert torch.equal(after, tensor)
    assert all(parameter.grad is None for parameter in net.parameters())


SHORT_RUN = ("trainer.max_epochs=2", "trainer.limit_train_batches=6")


def test_the_float64_reference_of_a_check_has_attention_of_its_own(compose, monkeypatch):
    words = ("model=mini_transformer", "model.dim=16", "model.depth=1", "model.num_heads=2", "data=synthetic")
    seen = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def spy(q, *args, **kwargs):
        seen.append((q.dtype, torch.backends.cuda.math_sdp_enabled()))
        return plain(q, *args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    row = run(compose(*words, "trainer.attention=flash", "check=true", "compile.mode=eager", *SHORT_RUN))
    assert (row.status, row.check_passed) == ("ok", True)
    assert set(seen) >= {(torch.float32, False), (torch.float64, True)}
    assert (torch.float64, False) not in seen
