"""The networks with control flow that torch.compile cannot trace: each has its problem, and its rewrite does not."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from trainkit.models.attribute_counter import AttributeCounter
from trainkit.models.convnet_mix import ConvNetMix
from trainkit.models.data_loop import DataLoop
from trainkit.models.data_shape import DataShape
from trainkit.models.decision_pipeline import DecisionPipeline
from trainkit.models.list_append import ListAppend
from trainkit.models.print_call import PrintCall
from trainkit.models.tensor_branch import TensorBranch

IMAGES = {"channels": 1, "num_classes": 5, "width": 16}
FLAT = {**IMAGES, "image_size": 6}
NETWORKS = {
    TensorBranch: FLAT,
    DataLoop: FLAT,
    PrintCall: FLAT,
    AttributeCounter: FLAT,
    DataShape: IMAGES,
    DecisionPipeline: {**IMAGES, "window": 4},
    ListAppend: {"vocab_size": 30, "num_classes": 5, "dim": 16},
}
# Traced whole: what it costs is a graph that grows with the sequence.
BREAKS = [network for network in NETWORKS if network not in (ListAppend, AttributeCounter)]


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def both(network: type[nn.Module]) -> tuple[nn.Module, nn.Module]:
    problem, rewrite = (network(**NETWORKS[network], rewritten=rewritten) for rewritten in (False, True))
    rewrite.load_state_dict(problem.state_dict(), strict=network is not AttributeCounter)
    return problem, rewrite


def batches(network: type[nn.Module]) -> list[Tensor]:
    """Some of each side of the branches: bright and dark, quiet and loud."""
    if network is ListAppend:
        return [torch.randint(30, (3, length)) for length in (7, 7, 2)]
    images = torch.randn(3, 1, 6, 6)
    return [scale * images for scale in (0.05, -1, 1, -20, 20)]


@pytest.mark.parametrize("network", NETWORKS)
def test_the_rewrite_computes_the_same_numbers_and_gradients(network):
    problem, rewrite = both(network)
    for batch in batches(network):
        results = []
        for net in (problem, rewrite):
            net.zero_grad()
            logits = net(batch)
            logits.square().sum().backward()
            results.append((logits, [weight.grad for weight in net.parameters()]))
        torch.testing.assert_close(results[1], results[0])


def test_the_batches_take_both_branches_and_several_counts():
    branch, loop = (both(network)[0] for network in (TensorBranch, DataLoop))
    assert len({bool(branch.fc1(batch.flatten(1)).mean() > 0) for batch in batches(TensorBranch)}) == 2
    steps, plain = [], loop.step
    loop.step = lambda x: steps.append(1) or plain(x)
    counts = {(loop(batch), len(steps), steps.clear())[1] for batch in batches(DataLoop)}
    assert len(counts) > 1


@pytest.mark.parametrize("bias", [-9, 9])
def test_a_decision_brakes_or_not_as_its_rewrite_does(bias):
    problem, rewrite = both(DecisionPipeline)
    for net in (problem, rewrite):
        nn.init.constant_(net.urgency.bias, bias)
    state = torch.randn(3, 32)
    torch.testing.assert_close(rewrite.decide(state), problem.decide(state))
    assert bool((problem.decide(state).abs() < state.abs()).all()) == (bias > 0)


@pytest.mark.parametrize("network", BREAKS)
def test_the_problem_breaks_the_graph_and_its_rewrite_does_not(network):
    for net, whole in zip(both(network), (False, True), strict=True):
        torch._dynamo.reset()
        counter = CompileCounter()
        torch.compile(net, backend=counter)(batches(network)[1])
        assert (counter.frame_count == 1) == whole


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_counter_in_an_attribute_is_compiled_anew_for_each_call(rewritten):
    net, graphs = AttributeCounter(**FLAT, rewritten=rewritten), []
    compiled = torch.compile(net, backend=lambda graph, _: graphs.append(graph) or graph.forward, dynamic=False)
    for _ in range(4):
        compiled(torch.randn(3, 1, 6, 6))
    assert len(graphs) == (1 if rewritten else 4)
    assert int(net.calls) == 4


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_list_that_grows_makes_a_graph_that_grows_with_the_sequence(rewritten):
    sizes = []
    for length in (4, 12):
        torch._dynamo.reset()
        net = ListAppend(**NETWORKS[ListAppend], rewritten=rewritten)
        net.compile(backend=lambda graph, _: sizes.append(len(graph.graph.nodes)) or graph.forward, dynamic=False)
        net(torch.randint(30, (2, length)))
    assert (sizes[1] > 1.5 * sizes[0]) != rewritten


def test_the_rewritten_random_head_is_one_graph_that_draws_among_all_heads():
    net = ConvNetMix(channels=1, num_classes=3, width=4, num_heads=3, random_head=True, rewritten=True).eval()
    images = torch.randn(2, 1, 8, 8)
    heads = [head(net.features(images)) for head in net.classifier]
    compiled = torch.compile(copy.deepcopy(net), backend="eager", fullgraph=True)
    for called in (net, compiled):
        logits = [called(images) for _ in range(40)]
        drawn = [next(n for n, head in enumerate(heads) if torch.allclose(of, head)) for of in logits]
        assert set(drawn) == {0, 1, 2}


def test_a_decision_does_not_see_what_lies_before_its_window_nor_the_padding():
    net = DecisionPipeline(**NETWORKS[DecisionPipeline])
    long = torch.randn(2, 1, 9, 6)
    torch.testing.assert_close(net(long), net(long[:, :, -4:]))
    assert net(long[:, :, -1:]).shape == (2, 5)
    assert not torch.allclose(net(long), net(long[:, :, -3:]))
    assert net(1e3 * long).abs().max() <= net.limit
