"""The networks with control flow that torch.compile cannot trace: each has its problem, and its rewrite does not."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from trainkit.diagnosis.diagnose import examine
from trainkit.diagnosis.trial import build_subject
from trainkit.models.attribute_counter import AttributeCounter
from trainkit.models.convnet_mix import ConvNetMix
from trainkit.models.data_loop import DataLoop
from trainkit.models.data_shape import DataShape
from trainkit.models.decision_pipeline import DecisionPipeline
from trainkit.models.gru_recurrence import GRURecurrence
from trainkit.models.layer_per_shape import LayerPerShape
from trainkit.models.list_append import ListAppend
from trainkit.models.print_call import PrintCall
from trainkit.models.routing import Routing
from trainkit.models.sample_branch import SampleBranch
from trainkit.models.sparse_attention import SparseAttention
from trainkit.models.tensor_branch import TensorBranch
from trainkit.models.weighted_branches import WeightedBranches

IMAGES = {"channels": 1, "num_classes": 5, "width": 16}
FLAT = {**IMAGES, "image_size": 6}
TOKENS = {"vocab_size": 30, "num_classes": 5, "dim": 16}
NETWORKS = {
    "tensor_branch": (TensorBranch, FLAT),
    "tensor_branch_cond": (TensorBranch, {**FLAT, "remedy": "cond"}),
    "sample_branch": (SampleBranch, FLAT),
    "weighted_branches": (WeightedBranches, FLAT),
    "routing": (Routing, FLAT),
    "data_loop": (DataLoop, FLAT),
    "data_loop_select": (DataLoop, {**FLAT, "remedy": "select"}),
    "data_loop_while": (DataLoop, {**FLAT, "remedy": "while_loop"}),
    "print_call": (PrintCall, FLAT),
    "attribute_counter": (AttributeCounter, FLAT),
    "data_shape": (DataShape, IMAGES),
    "layer_per_shape": (LayerPerShape, FLAT),
    "decision_pipeline": (DecisionPipeline, {**IMAGES, "window": 4}),
    "sparse_attention": (SparseAttention, TOKENS),
    "gru_recurrence": (GRURecurrence, TOKENS),
    "list_append": (ListAppend, TOKENS),
    "list_append_scan": (ListAppend, {**TOKENS, "remedy": "scan"}),
    "list_append_associative_scan": (ListAppend, {**TOKENS, "remedy": "associative_scan"}),
}
WHOLE = ("list_append", "attribute_counter")  # traced whole, at the cost of large graphs and of recompiles
BREAKS = [name for name in NETWORKS if not name.startswith(WHOLE)]
# The diagnosis of a problem that tests/defects.py does not have in this form.
CAUSES = {
    "sample_branch": "tensor branch",
    "tensor_branch_cond": "tensor branch",
    "weighted_branches": "tensor branch",
    "routing": "data-dependent shape",
    "data_loop": "data-dependent loop",
    "data_loop_select": "data-dependent loop",
    "data_loop_while": "data-dependent loop",
    "layer_per_shape": "layer that is made in forward",
    "sparse_attention": "data-dependent shape",
    "gru_recurrence": "recurrent layer of torch.nn",
    "decision_pipeline": "tensor branch",
}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def both(name: str) -> tuple[nn.Module, nn.Module]:
    network, settings = NETWORKS[name]
    problem, rewrite = (network(**settings, rewritten=rewritten) for rewritten in (False, True))
    weights = {key.removesuffix("_l0"): weight for key, weight in problem.state_dict().items()}  # of nn.GRU
    rewrite.load_state_dict(weights, strict=network is not AttributeCounter)
    return problem, rewrite


def batches(name: str) -> list[Tensor]:
    """Some of each side of the branches: bright and dark, quiet and loud."""
    if "dim" in NETWORKS[name][1]:
        return [torch.randint(30, (3, length)) for length in (7, 2)]
    images = torch.randn(3, 1, 6, 6)
    return [scale * images for scale in (0.05, -1, 1, -20, 20)]


def logits_and_gradients(net: nn.Module, batch: Tensor) -> list[Tensor]:
    """The gradient of a weight that a batch did not need is 0."""
    net.zero_grad()
    logits = net(batch)
    logits.square().sum().backward()
    gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in net.parameters()]
    return [logits.detach(), *gradients]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_rewrite_computes_the_same_numbers_and_gradients(name):
    problem, rewrite = both(name)
    for batch in batches(name):
        expected = logits_and_gradients(problem, batch)
        torch.testing.assert_close(logits_and_gradients(rewrite, batch), expected)


@pytest.mark.parametrize("name", BREAKS)
def test_the_problem_breaks_the_graph_and_its_rewrite_does_not(name):
    for net, whole in zip(both(name), (False, True), strict=True):
        torch._dynamo.reset()
        counter = CompileCounter()
        torch.compile(net, backend=counter)(batches(name)[1])
        assert (counter.frame_count == 1) == whole


@pytest.mark.parametrize("name", CAUSES)
def test_the_diagnosis_names_the_problem(name, compose):
    data = ("data=synthetic", "data.batch_size=8", "data.image_size=6", "data.seq_len=6")
    subject = build_subject(compose(f"model={name}", "model.rewritten=false", "compile.backend=eager", *data))
    causes = {finding.cause for finding in examine(subject).findings if finding.kind == "graph break"}
    assert causes == {CAUSES[name]}


@pytest.mark.parametrize("name", ["list_append", "list_append_scan", "list_append_associative_scan"])
def test_the_diagnosis_names_a_list_that_grows_and_nothing_of_its_rewrite(name, compose):
    data = ("data=synthetic", "data.batch_size=8", "data.seq_len=16", "compile.backend=eager")
    found = {}
    for rewritten in ("false", "true"):
        subject = build_subject(compose(f"model={name}", f"model.rewritten={rewritten}", *data))
        found[rewritten] = [(finding.kind, finding.num_repeats) for finding in examine(subject).findings]
    assert found == {"false": [("unrolled loop", 16)], "true": []}


@pytest.mark.parametrize("name", ["tensor_branch", "data_loop", "list_append"])
def test_an_unknown_remedy_is_refused(name):
    network, settings = NETWORKS[name]
    with pytest.raises(ValueError, match="remedy=hope is unknown; one of "):
        network(**settings, remedy="hope")


def test_the_batches_take_both_branches_and_several_counts():
    branch, loop, routing = (both(name)[0] for name in ("tensor_branch", "data_loop", "routing"))
    assert len({bool(branch.fc1(batch.flatten(1)).mean() > 0) for batch in batches("tensor_branch")}) == 2
    routes = [routing.router(routing.fc1(batch.flatten(1)).relu()).argmax(-1) for batch in batches("routing")]
    assert len(torch.cat(routes).unique()) > 1
    steps, plain = [], loop.step
    loop.step = lambda x: steps.append(1) or plain(x)
    counts = {(loop(batch), len(steps), steps.clear())[1] for batch in batches("data_loop")}
    assert len(counts) > 1


@pytest.mark.parametrize("weight", [0, 0.5, 1])
def test_branches_of_any_weight_are_those_of_the_rewrite(weight):
    problem, rewrite = both("weighted_branches")
    for net in (problem, rewrite):
        nn.init.zeros_(net.predict.weight)
        nn.init.constant_(net.predict.bias, 6 * (weight - 0.5))
    batch = batches("weighted_branches")[2]
    computed, plain = [], problem.wide.forward
    problem.wide.forward = lambda x: computed.append(1) or plain(x)
    expected = logits_and_gradients(problem, batch)
    torch.testing.assert_close(logits_and_gradients(rewrite, batch), expected)
    assert len(computed) == (weight > 0)


@pytest.mark.parametrize("bias", [-9, 9])
def test_a_decision_brakes_or_not_as_its_rewrite_does(bias):
    problem, rewrite = both("decision_pipeline")
    for net in (problem, rewrite):
        nn.init.constant_(net.urgency.bias, bias)
    state = torch.randn(3, 32)
    torch.testing.assert_close(rewrite.decide(state), problem.decide(state))
    assert bool((problem.decide(state).abs() < state.abs()).all()) == (bias > 0)


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_counter_in_an_attribute_is_compiled_anew_for_each_call(rewritten):
    net, graphs = AttributeCounter(**FLAT, rewritten=rewritten), []
    compiled = torch.compile(net, backend=lambda graph, _: graphs.append(graph) or graph.forward, dynamic=False)
    for _ in range(4):
        compiled(torch.randn(3, 1, 6, 6))
    assert len(graphs) == (1 if rewritten else 4)
    assert int(net.calls) == 4


def graph_size(net: nn.Module, length: int) -> int:
    """The operations of the graph for so many tokens."""
    sizes: list[int] = []
    torch._dynamo.reset()
    net.compile(backend=lambda graph, _: sizes.append(len(graph.graph.nodes)) or graph.forward, dynamic=False)
    net(torch.randint(30, (2, length)))
    return sizes[0]


@pytest.mark.parametrize(
    ("name", "grows"), [("list_append", False), ("list_append_scan", False), ("gru_recurrence", True)]
)
def test_only_a_loop_makes_a_graph_that_grows_with_the_sequence(name, grows):
    rewrite = both(name)[1]
    assert (graph_size(rewrite, 12) > 1.5 * graph_size(rewrite, 4)) == grows


def test_a_list_that_grows_makes_a_graph_that_grows_with_the_sequence():
    problem = both("list_append")[0]
    assert graph_size(problem, 12) > 1.5 * graph_size(problem, 4)


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
    net = both("decision_pipeline")[0]
    long = torch.randn(2, 1, 9, 6)
    torch.testing.assert_close(net(long), net(long[:, :, -4:]))
    assert net(long[:, :, -1:]).shape == (2, 5)
    assert not torch.allclose(net(long), net(long[:, :, -3:]))
    assert net(1e3 * long).abs().max() <= net.limit


def test_a_pipeline_ends_with_the_stage_that_is_named():
    _, settings = NETWORKS["decision_pipeline"]
    whole = DecisionPipeline(**settings).eval()
    batch = torch.randn(2, 1, 4, 6)
    nets = {}
    for until in ("perception", "decision", "control", "safety"):
        nets[until] = DecisionPipeline(**settings, until=until).eval()
        nets[until].load_state_dict(whole.state_dict())
    states = nets["perception"](batch)
    assert states.shape[:2] == (2, 4)
    state = nets["decision"](batch)
    torch.testing.assert_close(state, whole.decide(whole.remember(states)))
    actions = nets["control"](batch)
    assert actions.shape == (2, 5)
    torch.testing.assert_close(actions, whole.control(state))
    torch.testing.assert_close(nets["safety"](batch), whole.limit * torch.tanh(actions / whole.limit))
    torch.testing.assert_close(whole(batch), nets["safety"](batch))
    with pytest.raises(ValueError, match="until=actuators is no stage; one of perception, decision, control, safety"):
        DecisionPipeline(**settings, until="actuators")


def test_control_returns_actions_beyond_the_limits_and_safety_none():
    _, settings = NETWORKS["decision_pipeline"]
    raw, limited = (DecisionPipeline(**settings, limit=2.0, until=until) for until in ("control", "safety"))
    nn.init.constant_(raw.control[-1].bias, -1e3)
    limited.load_state_dict(raw.state_dict())
    batch = torch.randn(2, 1, 4, 6)
    assert raw(batch).max() < -2
    torch.testing.assert_close(limited(batch), torch.full((2, 5), -2.0))
