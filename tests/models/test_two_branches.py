"""Two branches in two CUDA streams compute what they compute one after the other."""

import copy

import pytest
import torch
from torch import Tensor, nn

from trainkit.models.two_branches import TwoBranches

SLEEP_CYCLES = 20_000_000  # about 10 ms of a GPU


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def both_ways(device: str) -> tuple[TwoBranches, TwoBranches]:
    """The same network with its branches one after the other, and in two streams."""
    in_turn = TwoBranches(channels=3, num_classes=5, width=16, depth=3).to(device, torch.float64)
    in_streams = copy.deepcopy(in_turn)
    in_streams.streams = True
    return in_turn, in_streams


def logits_and_gradients(net: nn.Module, images: Tensor) -> list[Tensor]:
    net.zero_grad()
    logits = net(images)
    logits.square().sum().backward()
    return [logits.detach(), *[weight.grad for weight in net.parameters()]]


def test_the_branches_are_equal_and_both_are_classified():
    net, _ = both_ways("cpu")
    shapes = [[weight.shape for weight in branch.parameters()] for branch in (net.first, net.second)]
    assert shapes[0] == shapes[1]
    images = torch.randn(2, 3, 7, 9, dtype=torch.float64)
    features = torch.cat([net.first(images), net.second(images)], 1)
    assert features.shape == (2, 32)
    torch.testing.assert_close(net(images), net.fc(features))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_cpu_computes_the_same_with_streams(compiled):
    in_turn, in_streams = both_ways("cpu")
    if compiled:
        in_streams.compile(backend="aot_eager", fullgraph=True)
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    expected = logits_and_gradients(in_turn, images)
    torch.testing.assert_close(logits_and_gradients(in_streams, images), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("compiled", [None, "first", "all"])
def test_a_gpu_computes_the_same_in_two_streams(compiled):
    in_turn, in_streams = both_ways("cuda")
    if compiled == "first":
        in_streams.first.compile()
    elif compiled == "all":
        in_streams.compile()
    used = []

    def delay(*_):
        used.append(torch.cuda.current_stream())
        torch.cuda._sleep(SLEEP_CYCLES)  # so features that are not waited for are joined too early

    in_streams.second.register_forward_pre_hook(delay)
    for _ in range(5):
        images = torch.randn(2, 3, 8, 8, dtype=torch.float64, device="cuda")
        expected = logits_and_gradients(in_turn, images)
        torch.cuda._sleep(3 * SLEEP_CYCLES)  # so images that are not waited for are read too early
        late_images = images.clone()
        torch.testing.assert_close(logits_and_gradients(in_streams, late_images), expected)
    assert len(set(used)) == 1
    assert used[0] != torch.cuda.current_stream()
