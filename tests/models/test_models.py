"""Every network of conf/model/, composed as train.py composes it: shapes, gradients, one graph, equal to eager."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from trainkit.config.composition import compose_config
from trainkit.config.errors import ConfigError
from trainkit.config.schema import NOT_ARGUMENTS
from trainkit.inputs import call, to_double
from trainkit.models.mini_transformer import Block, MiniTransformer
from trainkit.models.resnet18 import ResNet18
from trainkit.models.simple_cnn import SimpleCNN
from trainkit.training.model import build_data
from trainkit.training.objective import Objective, convert_to_channels_last

CONF = Path(__file__).parents[2] / "conf"
SMALL = ("data.batch_size=4", "data.image_size=8", "data.seq_len=16", "data.vocab_size=300")
SHRUNK = {"dim": 64, "depth": 2, "num_heads": 4, "patch_size": 4, "vocab_multiple": 1}  # where a network has it
NEXT_TOKEN = ("data.next_token=true",)


def cases():
    """Each network on random data and on the real data that has what it takes."""
    for file in sorted((CONF / "model").glob("*.yaml")):
        node = OmegaConf.load(file)
        if not str(node._target_).startswith("trainkit.models."):
            continue  # test_other_networks
        if "num_classes" not in node:
            continue  # it gives no logits: test_tutorial_networks
        yield file.stem, "synthetic", SMALL
        if node.inputs == "images":
            yield file.stem, "digits", ("data.batch_size=4",)
        if "next_token" in node:
            yield file.stem, "synthetic", (*SMALL, *NEXT_TOKEN)
        if "next_token" in node or node.get("language_model"):
            yield file.stem, "text", ("data.batch_size=4", "data.seq_len=16", "data.vocab_size=300")


def shrunk(model):
    settings = OmegaConf.load(CONF / "model" / f"{model}.yaml")
    return [f"model.{name}={value}" for name, value in SHRUNK.items() if name in settings]


def case_id(case):
    model, data, overrides = case
    return f"{model}-{data}" + ("-next_token" if overrides[-1:] == NEXT_TOKEN else "")


@pytest.fixture(scope="module", params=cases(), ids=case_id)
def pair(request, tmp_path_factory):
    """A network, a batch (inputs, targets) of its data, and the declared number of classes."""
    model, data, overrides = request.param
    if data == "text":
        folder = tmp_path_factory.mktemp("text")
        (folder / "all.txt").write_text("\n".join(f"Line {n} of the text says {n * n}." for n in range(200)))
        overrides = (*overrides, f"data.path={folder / 'all.txt'}", f"data.cache_dir={folder / 'cache'}")
    config = compose_config([f"model={model}", f"data={data}", *overrides, *shrunk(model)], CONF)
    torch.manual_seed(0)
    net = instantiate({name: value for name, value in config.model.items() if name not in NOT_ARGUMENTS})
    return net, build_data(config).sample(), config.data["num_classes"]


def loss_and_gradients(net: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor | None]]:
    torch.manual_seed(0)  # dropout, where a network has it
    net.zero_grad()
    logits = call(net, inputs)
    F.cross_entropy(logits.flatten(0, -2), targets.flatten()).backward()
    return logits.detach(), {name: weight.grad for name, weight in net.named_parameters()}


def test_there_is_one_logit_for_each_target_and_class(pair):
    net, (inputs, targets), num_classes = pair
    assert call(net, inputs).shape == (*targets.shape, num_classes)


def test_every_parameter_gets_a_finite_gradient(pair):
    net, batch, _ = pair
    _, gradients = loss_and_gradients(net, *batch)
    assert gradients
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
    routed = "branches."  # a branch that routing sends no sample of the batch to learns nothing from it
    weights = [gradient for name, gradient in gradients.items() if gradient.ndim > 1 and not name.startswith(routed)]
    assert all(gradient.any() for gradient in weights)


# On random data alone: digits and texts change the number of channels or of words, and not the graph.
@pytest.mark.parametrize("pair", [case for case in cases() if case[1] == "synthetic"], ids=case_id, indirect=True)
def test_it_is_one_graph_that_computes_what_eager_computes(pair):
    net, batch, _ = pair
    torch._dynamo.reset()
    compiled, counter = copy.deepcopy(net), CompileCounterWithBackend("aot_eager")
    compiled.compile(backend=counter, fullgraph=True)  # fullgraph: a graph break is an error
    expected, expected_gradients = loss_and_gradients(copy.deepcopy(net), *batch)
    logits, gradients = loss_and_gradients(compiled, *batch)
    assert counter.frame_count == 1
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(gradients, expected_gradients)


def test_channels_last_computes_the_same_or_is_refused(pair):
    net, (inputs, targets), _ = pair
    net = copy.deepcopy(net).double()
    inputs = to_double(inputs)
    plain, laid_out = Objective(copy.deepcopy(net)), Objective(net)
    if not any(weight.ndim == 4 for weight in net.parameters()):
        with pytest.raises(
            ConfigError, match=r"^trainer\.channels_last = True: .* has no 4-d weights .*; set it to fal"
        ):
            convert_to_channels_last(laid_out)
        return
    convert_to_channels_last(laid_out)
    for module in (*plain.modules(), *laid_out.modules()):
        if isinstance(module, nn.BatchNorm2d):
            module.eval()  # over two 1x1 images it makes of one rounding another network
    losses = []
    for objective in (plain, laid_out):
        torch.manual_seed(0)  # dropout, where a network has it
        losses.append(objective(inputs, targets))
        losses[-1].backward()
    torch.testing.assert_close(losses[1], losses[0])
    assert plain.state_dict().keys() == laid_out.state_dict().keys()
    for weight, other in zip(plain.parameters(), laid_out.parameters(), strict=True):
        torch.testing.assert_close(other.grad, weight.grad)
        assert other.ndim != 4 or other.is_contiguous(memory_format=torch.channels_last)


def test_its_weights_load_into_another_one(pair):
    net, (inputs, _), _ = pair
    other = copy.deepcopy(net)
    for weight in other.parameters():
        nn.init.ones_(weight)
    other.load_state_dict(net.state_dict())
    torch.testing.assert_close(call(other.eval(), inputs), call(copy.deepcopy(net).eval(), inputs), rtol=0, atol=0)


def test_it_learns_a_batch(pair):
    net, (inputs, targets), _ = pair
    net = copy.deepcopy(net)
    num_weights = sum(weight.numel() for weight in net.parameters())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3 if num_weights > 1000 else 0.1)  # few weights move slowly
    losses = []
    for _ in range(6):
        loss = F.cross_entropy(call(net, inputs).flatten(0, -2), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert min(losses) < 0.9 * losses[0]  # BatchNorm over two 1x1 images makes a deep network jump


def transformer(**changes) -> MiniTransformer:
    sizes = {"vocab_size": 50, "seq_len": 12, "num_classes": 50, "next_token": True, "dim": 32, "num_heads": 4}
    torch.manual_seed(0)
    return MiniTransformer(**{**sizes, **changes})


@pytest.mark.parametrize("next_token", [True, False])
def test_a_position_sees_later_tokens_only_where_a_sequence_is_classified(next_token):
    block = transformer(next_token=next_token).blocks[0]
    x = torch.randn(2, 12, 32)
    changed = x.clone()
    changed[:, 8:] = 0
    assert torch.equal(block(x)[:, :8], block(changed)[:, :8]) == next_token


def test_a_block_computes_what_the_transformer_layer_of_torch_computes():
    torch.manual_seed(0)
    block = Block(dim=32, num_heads=4, dropout=0.0, causal=False)
    layer = nn.TransformerEncoderLayer(32, 4, 128, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    names = {"attention.qkv.": "self_attn.in_proj_", "attention.project.": "self_attn.out_proj."}
    names |= {"widen.": "linear1.", "shrink.": "linear2.", "norm1.": "norm1.", "norm2.": "norm2."}
    weights = block.state_dict()
    layer.load_state_dict(
        {theirs + kind: weights[ours + kind] for ours, theirs in names.items() for kind in ("weight", "bias")}
    )
    x = torch.randn(2, 7, 32)
    torch.testing.assert_close(block(x), layer(x))


@pytest.mark.parametrize("next_token", [True, False])
def test_a_masked_position_changes_no_other(next_token):
    net = transformer(next_token=next_token, depth=1).eval()
    mask = torch.ones(2, 12, 12, dtype=torch.bool)
    mask[:, :, 3] = False
    mask[:, 3, 3] = True
    x = torch.randn(2, 12, 32)
    changed = x.clone()
    changed[:, 3] = 0
    before, after = net.blocks[0](x, mask), net.blocks[0](changed, mask)
    others = torch.arange(12) != 3
    assert torch.equal(before[:, others], after[:, others])
    assert not torch.equal(before[:, 3], after[:, 3])
    full = torch.ones(2, 12, 12, dtype=torch.bool)
    torch.testing.assert_close(net.blocks[0](x, full), net.blocks[0](x))


def test_padding_is_seen_by_itself_alone():
    net = transformer(next_token=False, padding_mask=True).eval()
    tokens = torch.randint(1, 50, (2, 12))
    tokens[:, 9:] = 0
    mask = (tokens != 0)[:, None, :] | torch.eye(12, dtype=torch.bool)
    torch.testing.assert_close(net(tokens), net(tokens, mask), rtol=0, atol=0)
    assert not torch.allclose(net(tokens), transformer(next_token=False).eval()(tokens))


def test_a_masked_transformer_is_one_graph():
    torch._dynamo.reset()
    net, tokens = transformer(padding_mask=True), torch.randint(50, (2, 12))
    mask = torch.ones(2, 12, 12, dtype=torch.bool)
    expected = net(tokens), net(tokens, mask)
    counter = CompileCounterWithBackend("aot_eager")
    net.compile(backend=counter, fullgraph=True)
    torch.testing.assert_close((net(tokens), net(tokens, mask)), expected)
    assert counter.frame_count == 2


def test_residual_projections_start_smaller_the_deeper_the_network():
    for depth in (1, 8):
        block = transformer(depth=depth, dim=128).blocks[0]
        for projection in (block.attention.project, block.shrink):
            assert projection.weight.std().item() == pytest.approx(0.02 / (2 * depth) ** 0.5, rel=0.05)
        assert block.widen.weight.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_sequence_may_be_shorter_but_not_longer_than_declared(compiled):
    net = transformer()
    if compiled:
        net.compile(backend="eager")
    assert net(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, 50)
    with pytest.raises(ValueError, match="13 tokens is longer than seq_len=12"):
        net(torch.zeros(1, 13, dtype=torch.long))


def test_sizes_that_cannot_be_built_say_so():
    with pytest.raises(ValueError, match="num_heads=5 does not divide dim=32"):
        transformer(num_heads=5)
    with pytest.raises(ValueError, match="image_size=3 is too small"):
        SimpleCNN(channels=1, image_size=3, num_classes=10)


def test_resnet18_has_the_parameters_of_the_published_one():
    # torchvision's resnet18 has 11,689,512; its 7x7 stem has 64*3*49 weights, this 3x3 one 64*3*9.
    net = ResNet18(channels=3, num_classes=1000)
    assert sum(weight.numel() for weight in net.parameters()) == 11_689_512 - 64 * 3 * (49 - 9)


@pytest.mark.parametrize("side", [8, 9, 32])
def test_resnet18_takes_any_side_from_8_up(side):
    net = ResNet18(channels=1, num_classes=7, width=8)
    assert net(torch.randn(2, 1, side, side)).shape == (2, 7)


def test_resnet18_halves_the_image_three_times():
    net = ResNet18(channels=1, num_classes=7, width=8)
    features = nn.Sequential(net.conv, net.stage1, net.stage2, net.stage3, net.stage4)(torch.randn(2, 1, 32, 32))
    assert features.shape == (2, 64, 4, 4)
