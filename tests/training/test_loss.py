"""The fused linear cross entropy against PyTorch's own, and where the Objective takes it."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.functional import cross_entropy

from trainkit.compiler.compiler import Compiler
from trainkit.training import objective as objective_module
from trainkit.training.loss import linear_cross_entropy
from trainkit.training.objective import Objective
from trainkit.training.task import Task

N, D, C = 37, 16, 211


def operands(dtype: torch.dtype, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    features = torch.randn(N, D, dtype=torch.float64, device=device)
    weight = torch.randn(C, D, dtype=torch.float64, device=device)
    targets = torch.randint(C, (N,), device=device)
    return features.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), targets


def reference(features, weight, targets):
    """Loss and gradients in float64, of the numbers that the operands hold."""
    features, weight = (x.detach().double().requires_grad_() for x in (features, weight))
    loss = 3 * cross_entropy(features @ weight.T, targets)
    return loss.detach(), *torch.autograd.grad(loss, (features, weight))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=str
)
def test_it_is_the_cross_entropy_of_the_product(dtype, tolerance, compiled):
    function = torch.compile(linear_cross_entropy, fullgraph=True) if compiled else linear_cross_entropy
    assert_equal(function, *operands(dtype), tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("num_classes", [211, 8192, 20_000])  # less than a block of the kernel, one, several
def test_the_kernel_is_the_cross_entropy_of_the_product(num_classes, compiled):
    function = torch.compile(linear_cross_entropy, fullgraph=True) if compiled else linear_cross_entropy
    features, weight, targets = operands(torch.bfloat16, "cuda")
    weight = torch.randn(num_classes, D, device="cuda").bfloat16().requires_grad_()
    assert_equal(function, features, weight, targets, 2e-2)


def assert_equal(function, features, weight, targets, tolerance):
    loss = 3 * function(features, weight, targets)
    found = [loss.detach(), *torch.autograd.grad(loss, (features, weight))]
    for ours, theirs in zip(found, reference(features, weight, targets), strict=True):
        assert (ours.double() - theirs).norm() <= tolerance * theirs.norm()


def test_logits_that_overflow_every_exponential():
    features, weight, targets = operands(torch.float32)
    assert_equal(linear_cross_entropy, (1e3 * features.detach()).requires_grad_(), weight, targets, 1e-5)


def test_a_target_of_minus_100_leaves_its_row_out():
    features, weight, targets = operands(torch.float64)
    targets[::3] = -100
    assert_equal(linear_cross_entropy, features, weight, targets, 1e-12)


@pytest.mark.gpu
def test_the_kernel_leaves_rows_out_and_makes_an_unknown_class_nan():
    features, weight, targets = operands(torch.bfloat16, "cuda")
    targets[::3] = -100
    assert_equal(linear_cross_entropy, features, weight, targets, 2e-2)
    for unknown in (-1, C):
        targets[0] = unknown
        assert linear_cross_entropy(features, weight, targets).isnan()


@pytest.mark.parametrize("unknown", [-1, C])
def test_an_unknown_class_is_an_error(unknown):
    features, weight, targets = operands(torch.float32)
    targets[0] = unknown
    with pytest.raises(RuntimeError, match="out of bounds"):
        linear_cross_entropy(features, weight, targets)


def test_it_has_no_second_derivative():
    features, weight, targets = operands(torch.float64)
    (first,) = torch.autograd.grad(linear_cross_entropy(features, weight, targets), features, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        first.sum().backward()


class LanguageModel(nn.Module):
    logits_are_head_of_features = True

    def __init__(self, bias: bool = False):
        super().__init__()
        self.token, self.head = nn.Embedding(C, D), nn.Linear(D, C, bias=bias)

    def features(self, tokens):
        return self.token(tokens).sin()

    def forward(self, tokens):
        return self.head(self.features(tokens))


@pytest.fixture
def calls(monkeypatch):
    """How often the Objective took the fused loss."""
    seen = []

    def spy(*args):
        seen.append(args)
        return linear_cross_entropy(*args)

    monkeypatch.setattr(objective_module, "linear_cross_entropy", spy)
    return seen


def loss_of(objective, dtype=torch.bfloat16, enabled=True):
    torch.manual_seed(1)
    tokens = torch.randint(C, (4, 8))
    with torch.autocast("cpu", dtype, enabled=enabled):
        return objective(tokens, tokens.roll(1, 1))


def test_a_language_model_trains_with_it_under_bfloat16(calls):
    torch.manual_seed(0)
    objective = Objective(LanguageModel())
    loss = loss_of(objective)
    loss.backward()
    assert len(calls) == 1
    fused = {name: p.grad.clone() for name, p in objective.named_parameters()}
    objective.zero_grad()
    plain = loss_of(objective, enabled=False)
    plain.backward()
    assert len(calls) == 1
    assert loss.item() == pytest.approx(plain.item(), rel=1e-3)
    for name, p in objective.named_parameters():
        assert (fused[name] - p.grad).norm() < 0.02 * p.grad.norm(), name


class SoftCapped(LanguageModel):
    """Has a head and features as well, and makes more of them than their product."""

    logits_are_head_of_features = False

    def forward(self, tokens):
        return 5 * (super().forward(tokens) / 5).tanh()


@pytest.mark.parametrize(
    "objective",
    [
        lambda: Objective(LanguageModel()).eval(),
        lambda: Objective(LanguageModel(), whole_net=True),
        lambda: Objective(SoftCapped()),
        lambda: Objective(nn.Sequential(nn.Embedding(C, D), nn.Linear(D, C))),
    ],
    ids=["evaluation", "whole_net", "no promise", "another network"],
)
def test_elsewhere_the_network_is_called_whole(calls, objective):
    loss_of(objective())
    assert not calls


@pytest.mark.parametrize(("scope", "whole_net"), [("step", False), ("net", True)])
@pytest.mark.parametrize("mode", ["eager", "default"])
def test_with_compile_scope_net_no_mode_takes_the_network_apart(scope, whole_net, mode, compose):
    config = compose("model=gpt2", "data=synthetic", f"compile.scope={scope}", f"compile.mode={mode}")
    compiler = Compiler(config.compile, lambda kind: None, lambda kind: None)
    assert Task(LanguageModel(), compiler, torch.optim.SGD, config).objective.whole_net == whole_net


def test_torch_compile_takes_network_and_loss_into_one_graph(calls):
    torch.manual_seed(0)
    objective = Objective(LanguageModel())
    expected = loss_of(objective)
    counter = CompileCounterWithBackend("aot_eager")
    objective.compile(backend=counter, fullgraph=True)
    torch.testing.assert_close(loss_of(objective), expected)
    assert counter.frame_count == 1


def test_half_precision_keeps_its_own_range(calls):
    loss_of(Objective(LanguageModel()), torch.float16)
    assert not calls
