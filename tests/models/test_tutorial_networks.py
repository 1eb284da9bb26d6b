"""The networks of the torch.compile tutorials: that each has the structure it is named for, and computes it."""

import math

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

from trainkit.models import costly_functions, local_optimized, statement_chain
from trainkit.models.bottleneck_net import BottleneckNet
from trainkit.models.complex_net import Block, ComplexNet, Context, SqueezeExcite
from trainkit.models.convnet_mix import ConvNetMix, MultiScale
from trainkit.models.costly_functions import CostlyFunctions
from trainkit.models.dynamic_mlp import DynamicMLP
from trainkit.models.local_optimized import LocalOptimized, channel_spatial_attention, costly_activation
from trainkit.models.multi_scale_net import MultiScaleNet
from trainkit.models.op_chain import STATEMENTS, OpChain, chain
from trainkit.models.simple_net import SimpleNet
from trainkit.models.statement_chain import StatementChain


class Operations(TorchDispatchMode):
    """Counts the operations that reach a device, each a kernel in eager."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def convolutions(net: nn.Module) -> list[nn.Conv2d]:
    return [module for module in net.modules() if isinstance(module, nn.Conv2d)]


def parameters(net: nn.Module) -> int:
    return sum(weight.numel() for weight in net.parameters())


def test_simple_net_is_the_one_of_the_tutorials():
    tutorial = nn.Sequential(nn.Flatten(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    net = SimpleNet(channels=2, image_size=16, num_classes=10)
    net.load_state_dict(dict(zip(net.state_dict(), tutorial.state_dict().values(), strict=True)))
    images = torch.randn(3, 2, 16, 16)
    torch.testing.assert_close(net(images), tutorial(images))


def test_complex_net_has_four_blocks_with_kernels_1_3_5_7_and_a_context_with_dilations_1_2_4():
    net = ComplexNet(channels=3, num_classes=10)
    blocks = [module for module in net.modules() if isinstance(module, Block)]
    assert len(blocks) == 4
    for block in blocks:
        assert [conv.kernel_size for conv in convolutions(block.branches)] == [(1, 1), (3, 3), (5, 5), (7, 7)]
        assert block.bottleneck[0].kernel_size == (1, 1)
        assert block.grouped[0].groups == 4
        assert isinstance(block.gate, SqueezeExcite)
    assert [conv.dilation for conv in convolutions(net.context)] == [(1, 1), (2, 2), (4, 4)]
    assert 2e6 < parameters(net) < 4e6


@pytest.mark.parametrize("side", [1, 8, 9, 16])
def test_complex_net_takes_any_side(side):
    net = ComplexNet(channels=1, num_classes=7, width=8, groups=2)
    assert net(torch.randn(2, 1, side, side)).shape == (2, 7)


@pytest.mark.parametrize(("width_in", "stride", "side"), [(16, 1, 8), (8, 1, 8), (16, 2, 4)])
def test_a_block_adds_what_it_computes_to_a_skip(width_in, stride, side):
    block = Block(width_in, 16, stride, groups=4).eval()
    nn.init.zeros_(block.grouped[0].weight)  # nothing is left but the skip
    x = torch.randn(2, width_in, 8, 8)
    assert block(x).shape == (2, 16, side, side)
    torch.testing.assert_close(block(x), block.skip(x).relu())
    assert isinstance(block.skip, nn.Identity) == (stride == 1 and width_in == 16)


def test_squeeze_and_excite_scales_each_channel_by_one_number_below_one():
    x = torch.randn(2, 16, 5, 5)
    scale = SqueezeExcite(16)(x) / x
    assert ((scale > 0) & (scale < 1)).all()
    torch.testing.assert_close(scale, scale.mean((2, 3), keepdim=True).expand_as(scale))


def test_the_context_of_a_pixel_is_15_by_15():
    context = Context(4).eval()
    for layer in context.layers:
        nn.init.ones_(layer[0].weight)  # no two paths cancel, no ReLU is off
    x = torch.ones(1, 4, 21, 21, requires_grad=True)
    context(x)[0, :, 10, 10].sum().backward()
    seen = x.grad[0].abs().sum(0) > 0
    assert seen[3:18, 3:18].all()
    assert seen.sum() == 15 * 15


def test_complex_net_drops_out_in_training_alone():
    net = ComplexNet(channels=1, num_classes=7, width=8, groups=2, dropout=0.5)
    images = torch.randn(4, 1, 8, 8)
    assert not torch.equal(net(images), net(images))
    net.eval()
    assert torch.equal(net(images), net(images))


def formula(x: float) -> float:
    """What costly_activation documents, by the standard library."""
    softplus = math.log1p(math.exp(-abs(x))) + max(x, 0.0)
    return x * math.tanh(softplus) + 0.1 * math.sin(x) / (1 + math.exp(-x)) * math.exp(-x * x)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-6)])
def test_the_costly_activation_computes_its_formula(dtype, tolerance):
    x = torch.linspace(-30, 30, 601, dtype=dtype)
    expected = torch.tensor([formula(value) for value in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(costly_activation(x).double(), expected, rtol=tolerance, atol=tolerance)


def test_the_costly_activation_has_the_right_gradients():
    x = torch.linspace(-5, 5, 40, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(costly_activation, (x,))
    far = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], requires_grad=True)
    costly_activation(far).sum().backward()
    torch.testing.assert_close(far.grad, torch.tensor([0.0, 0.0, 0.65, 1.0, 1.0]))  # at 0: tanh(ln 2) + 0.1 / 2


def test_the_costly_activation_is_twelve_kernels_in_eager():
    x = torch.randn(10)
    with Operations() as operations:
        costly_activation(x)
    assert operations.count == 12


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 8e-3)], ids=str)
def test_the_kernel_computes_the_formula_and_its_gradient(dtype, tolerance, layout, compiled):
    function = local_optimized.costly_activation_triton
    x = torch.linspace(-30, 30, 3 * 7 * 11 * 13, device="cuda").view(3, 7, 11, 13).to(dtype)
    x = x.contiguous(memory_format=layout).requires_grad_()
    y = (torch.compile(function, fullgraph=True) if compiled else function)(x)
    (grad,) = torch.autograd.grad(y, x, torch.cos(x).to(dtype))
    wide = x.detach().double().requires_grad_()
    expected = costly_activation(wide)
    (expected_grad,) = torch.autograd.grad(expected, wide, torch.cos(x).to(dtype).double())
    assert (y.dtype, y.stride()) == (dtype, x.stride())
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(grad.double(), expected_grad, rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(local_optimized.triton is not None, reason="needs a build of torch without triton")
def test_the_kernel_is_refused_where_there_is_no_triton():
    with pytest.raises(ValueError, match="triton_activation=True needs triton"):
        LocalOptimized(channels=1, num_classes=7, triton_activation=True)


def attention_weights(width: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    return scale * torch.randn(2, width), scale * torch.randn(width, 2), scale * torch.randn(1, 2, 7, 7)


def test_attention_scales_by_numbers_between_0_and_1():
    x = torch.randn(3, 8, 9, 5)
    y = channel_spatial_attention(x, *attention_weights(8, 0.2))
    assert y.shape == x.shape
    scale = y / x
    assert ((scale > 0) & (scale < 1)).all()
    by_channel = scale / scale[:, :1]  # the pixel's factor cancels: what is left is one number for each channel
    torch.testing.assert_close(by_channel, by_channel.mean((2, 3), keepdim=True).expand_as(scale))


def test_attention_without_weights_halves_twice():
    x = torch.randn(3, 8, 9, 5)
    torch.testing.assert_close(channel_spatial_attention(x, *attention_weights(8, 0.0)), x / 4)


def test_attention_is_that_of_cbam():
    """Woo et al. 2018, equations 2 and 3, written with torch's layers."""
    x, (reduce, expand, spatial) = torch.randn(3, 8, 9, 5), attention_weights(8)

    def mlp(pooled: Tensor) -> Tensor:
        return F.conv2d(F.conv2d(pooled, reduce[:, :, None, None]).relu(), expand[:, :, None, None])

    x_channel = x * torch.sigmoid(mlp(F.adaptive_avg_pool2d(x, 1)) + mlp(F.adaptive_max_pool2d(x, 1)))
    pooled = torch.cat([x_channel.mean(1, keepdim=True), x_channel.max(1, keepdim=True).values], 1)
    expected = x_channel * torch.sigmoid(F.conv2d(pooled, spatial, padding=3))
    torch.testing.assert_close(channel_spatial_attention(x, reduce, expand, spatial), expected)


@pytest.mark.parametrize("name", ["costly_activation", "channel_spatial_attention"])
def test_a_hot_spot_can_be_compiled_alone(name, monkeypatch):
    net, images = LocalOptimized(channels=1, num_classes=7, width=8), torch.randn(2, 1, 8, 8)
    expected = net(images)
    counter = CompileCounterWithBackend("aot_eager")
    function = getattr(local_optimized, name)
    monkeypatch.setattr(local_optimized, name, torch.compile(function, backend=counter, fullgraph=True, dynamic=False))
    torch.testing.assert_close(net(images), expected)
    assert counter.frame_count == 2  # one for the sizes of each stage


def test_convnet_mix_looks_with_kernels_3_5_7_and_classifies_by_five_heads():
    net = ConvNetMix(channels=3, num_classes=10)
    scales = [module for module in net.features if isinstance(module, MultiScale)]
    assert len(scales) == 2
    for scale in scales:
        assert [conv.kernel_size for conv in convolutions(scale)] == [(3, 3), (5, 5), (7, 7)]
    assert len(net.classifier) == 5
    features = net.features(torch.randn(2, 3, 8, 8))
    assert features.shape == (2, net.classifier[0].in_features)


def mixes(**changes) -> tuple[ConvNetMix, Tensor, list[Tensor]]:
    """A network in evaluation, images, and the logits of each of its heads for them."""
    net = ConvNetMix(**{"channels": 1, "num_classes": 7, "width": 4, **changes}).eval()
    images = torch.randn(3, 1, 8, 8)
    features = net.features(images)
    return net, images, [head(features) for head in net.classifier]


def test_convnet_mix_takes_the_mean_of_its_heads():
    net, images, heads = mixes()
    torch.testing.assert_close(net(images), sum(heads) / 5)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_random_head_is_the_one_that_numpy_picks(compiled):
    net, images, heads = mixes(random_head=True)
    counter = CompileCounterWithBackend("eager")
    if compiled:
        net.compile(backend=counter)
    numpy.random.seed(0)
    expected = [numpy.random.randint(5) for _ in range(20)]
    numpy.random.seed(0)
    picked = []
    for _ in expected:
        logits = net(images)
        picked += [i for i, head in enumerate(heads) if torch.allclose(logits, head, atol=1e-6)]
    assert picked == expected
    assert set(picked) == {0, 1, 2, 3, 4}
    if compiled:
        assert counter.frame_count == 6  # the graph before the pick, and one that follows with each head


def test_a_random_head_is_no_single_graph():
    net, images, _ = mixes(random_head=True)
    net.compile(backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        net(images)


@pytest.mark.parametrize("num_ops", [1, 13, 32])
def test_every_statement_of_a_chain_is_a_kernel_in_eager_and_all_are_in_one_graph(num_ops):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    start = torch.randn(10)
    with Operations() as operations:
        expected = chain(start, num_ops)
    assert operations.count == num_ops
    torch.testing.assert_close(torch.compile(chain, backend=backend, fullgraph=True)(start, num_ops), expected)
    assert [sum(node.op.startswith("call") for node in graph.graph.nodes) for graph in graphs] == [num_ops]


def test_a_chain_of_500_is_one_graph_and_learns():
    net = OpChain(channels=1, image_size=8, num_classes=7, width=16, num_ops=500)
    images = torch.randn(4, 1, 8, 8)
    expected = net(images)
    counter = CompileCounterWithBackend("aot_eager")
    net.compile(backend=counter, fullgraph=True)
    logits = net(images)
    assert counter.frame_count == 1
    assert logits.isfinite().all()
    torch.testing.assert_close(logits, expected)
    logits.square().sum().backward()
    assert net.fc1.weight.grad.isfinite().all()
    assert net.fc1.weight.grad.any(1).all()


@pytest.mark.parametrize("num_ops", [*range(1, 20), 500])
def test_a_chain_stays_within_one_of_its_start(num_ops):
    start = torch.tensor([-1e30, -20.0, -1.0, 0.0, 1.0, 20.0, 1e30], requires_grad=True)
    end = chain(start, num_ops)
    assert (end.abs() <= start.abs() + 1).all()
    end.sum().backward()
    assert start.grad.isfinite().all()
    assert start.grad[2:5].all()  # ordinary values still matter after any number of statements


def test_the_statements_of_a_chain_are_of_several_kinds():
    x, start = torch.randn(100), torch.randn(100)
    outcomes = [statement(x, start) for statement in STATEMENTS]
    assert sum(any(torch.equal(a, b) for b in outcomes[:i]) for i, a in enumerate(outcomes)) == 1  # + start, twice


def mlp(**changes) -> DynamicMLP:
    return DynamicMLP(**{"vocab_size": 50, "num_classes": 7, "next_token": False, "dim": 16, "depth": 2, **changes})


@pytest.mark.parametrize("compiled", [False, True])
def test_dynamic_mlp_gives_a_sequence_the_same_logits_whatever_other_lengths_it_sees(compiled):
    net, sequence = mlp(), torch.randint(50, (1, 9))
    expected = net(sequence)
    if compiled:
        net.compile(backend="eager", fullgraph=True)
    for length in (1, 2, 33, 500):
        others = torch.randint(50, (3, length))
        assert net(others).shape == (3, 7)
        torch.testing.assert_close(net(sequence), expected)
    torch.testing.assert_close(net(torch.cat([sequence, torch.randint(50, (4, 9))]))[:1], expected)
    torch.testing.assert_close(net(sequence.flip(1)), expected)  # it knows no positions


def test_dynamic_mlp_predicts_the_next_token_from_a_token_alone():
    net, tokens = mlp(next_token=True), torch.randint(50, (2, 9))
    logits = net(tokens)
    assert logits.shape == (2, 9, 7)
    for t in range(9):
        torch.testing.assert_close(net(tokens[:, t : t + 1])[:, 0], logits[:, t])


def test_dynamic_mlp_is_compiled_once_for_all_lengths():
    net, counter = mlp(), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(net, backend=counter, fullgraph=True, dynamic=True)
    compiled(torch.randint(50, (3, 5)))
    frames = counter.frame_count  # dynamo may hand its graph over twice while it compiles once
    for length in (2, 33, 128):
        tokens = torch.randint(50, (3, length))
        torch.testing.assert_close(compiled(tokens), net(tokens))
    assert counter.frame_count == frames


def linear_sizes(net: nn.Module) -> list[tuple[int, int]]:
    return [(layer.in_features, layer.out_features) for layer in net.modules() if isinstance(layer, nn.Linear)]


def outputs_of(net: nn.Module, module: nn.Module, images: Tensor) -> list[torch.Size]:
    """The shapes that a module of the network gives for these images."""
    shapes = []
    hook = module.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))
    net(images)
    hook.remove()
    return shapes


def test_bottleneck_net_is_the_one_of_the_modes():
    net = BottleneckNet(channels=3, num_classes=10).eval()
    stem = net.stem[0]
    assert (stem.in_channels, stem.out_channels, stem.kernel_size, stem.stride) == (3, 64, (7, 7), (2, 2))
    widths = [(block.widen[0].out_channels, block.skip[0].in_channels) for block in net.blocks]
    assert widths == [(128, 64), (256, 128), (512, 256), (1024, 512)]
    for block, width in zip(net.blocks, (128, 256, 512, 1024), strict=True):
        assert block.bottleneck[0].out_channels == width // 4
        assert [conv.kernel_size for conv in block.branches] == [(3, 3), (5, 5), (7, 7), (1, 1)]
        assert {conv.out_channels for conv in block.branches} == {width // 16}
        assert (block.grouped.kernel_size, block.grouped.groups) == ((3, 3), 4)
        assert block.gate.squeeze.out_features == width // 64
    assert [(conv.kernel_size, conv.dilation) for conv in convolutions(net.context)] == [
        ((1, 1), (1, 1)),
        ((3, 3), (2, 2)),
    ]
    assert linear_sizes(net)[-2:] == [(512, 256), (256, 10)]
    assert net.dropout.p == 0.5
    assert outputs_of(net, net.context, torch.randn(1, 3, 224, 224)) == [(1, 512, 7, 7)]


@pytest.mark.parametrize("side", [1, 8, 33])
def test_bottleneck_net_takes_any_side(side):
    assert BottleneckNet(channels=1, num_classes=7, width=16)(torch.randn(2, 1, side, side)).shape == (2, 7)


def test_multi_scale_net_is_the_one_of_parts_and_whole():
    net = MultiScaleNet(channels=3, image_size=64, num_classes=10).eval()
    assert len(net.features) == 3
    widths = [(3, 32), (32, 64), (64, 128)]
    for block, (width_in, width) in zip(net.features, widths, strict=True):
        assert [conv.kernel_size[0] for conv in convolutions(block)] == [1, 3, 5, 7, 1]
        assert [(conv.in_channels, conv.out_channels) for conv in convolutions(block)[:4]] == 4 * [(width_in, width)]
        assert [type(layer) for layer in block.branches[0]] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d]
        assert [type(layer) for layer in block.fuse] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    assert linear_sizes(net) == [(128 * 8 * 8, 512), (512, 10)]
    assert outputs_of(net, net.features, torch.randn(1, 3, 64, 64)) == [(1, 128, 8, 8)]


def test_multi_scale_net_classifies_by_the_head_that_numpy_picks():
    sizes = {"channels": 1, "image_size": 8, "num_classes": 7, "width": 4, "hidden": 8}
    net = MultiScaleNet(**sizes, num_classifiers=3, random_classifier=True).eval()
    images = torch.randn(2, 1, 8, 8)
    logits = [classifier(net.features(images).flatten(1)) for classifier in net.classifiers]
    numpy.random.seed(0)
    expected = [numpy.random.randint(3) for _ in range(10)]
    numpy.random.seed(0)
    for index in expected:
        torch.testing.assert_close(net(images), logits[index])
    assert set(expected) == {0, 1, 2}
    net.features = nn.Identity()
    net.compile(backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        net(torch.randn(2, 16, 1, 1))


def test_costly_functions_has_the_layers_of_functions_and_whole():
    net = CostlyFunctions(channels=3, num_classes=10)
    sizes = [(conv.in_channels, conv.out_channels, conv.kernel_size) for conv in convolutions(net)]
    assert sizes == [(3, 64, (3, 3)), (64, 128, (3, 3)), (128, 128, (3, 3)), (128, 256, (3, 3))]
    assert sum(isinstance(module, nn.BatchNorm2d) for module in net.modules()) == 4
    assert linear_sizes(net) == [(256, 10)]
    x = torch.tensor([-2.0, 0.0, 0.5])
    formula = [math.sin(v) + v * v * math.tanh(v) + math.exp(-abs(v)) for v in x.tolist()]
    logs = [math.log(max(abs(v), 1e-6)) / (1 + math.exp(-v)) for v in x.tolist()]
    expected = torch.tensor(formula) + torch.tensor(logs)
    torch.testing.assert_close(costly_functions.costly_activation(x), expected)
    scale = costly_functions.channel_spatial_attention(torch.ones(2, 3, 4, 4))
    first = 1 / (1 + math.exp(-2))
    torch.testing.assert_close(scale, torch.full_like(scale, first / (1 + math.exp(-2 * first))))


@pytest.mark.parametrize("name", ["costly_activation", "channel_spatial_attention"])
def test_each_costly_function_can_be_compiled_alone(name, monkeypatch):
    net, images = CostlyFunctions(channels=1, num_classes=7, width=8), torch.randn(2, 1, 8, 8)
    expected = net(images)
    counter = CompileCounterWithBackend("aot_eager")
    function = torch.compile(getattr(costly_functions, name), backend=counter, fullgraph=True)
    monkeypatch.setattr(costly_functions, name, function)
    torch.testing.assert_close(net(images), expected)
    assert counter.frame_count == 1


def test_a_statement_chain_takes_20_statements_in_turn_and_sums():
    x = torch.randn(8, 16, 1, 1)
    expected = torch.exp(((x + 1).sin() * 2).cos().relu().sub(0.5) * 0.5).sigmoid().sum()
    torch.testing.assert_close(StatementChain(num_ops=8)(x), expected)
    assert len(statement_chain.STATEMENTS) == 20
    for num_ops, kernels in ((1, 2), (10, 12), (20, 22), (30, 33)):  # with the sum; the seventh statement has two
        with Operations() as operations:
            total = StatementChain(num_ops)(x)
        assert operations.count == kernels
        assert total.shape == ()
        assert total.isfinite()


def test_a_statement_chain_is_one_graph_for_all_sizes():
    net, counter = StatementChain(num_ops=30), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(net, backend=counter, fullgraph=True, dynamic=True)
    for batch_size in range(4, 14):
        x = torch.randn(batch_size, 16, 1, 1)
        torch.testing.assert_close(compiled(x), net(x))
    assert counter.frame_count == 1


def test_sizes_that_cannot_be_built_say_so():
    with pytest.raises(ValueError, match="width=10 does not divide into 4 branches and groups=2"):
        ComplexNet(channels=1, num_classes=7, width=10, groups=2)
    with pytest.raises(ValueError, match="width=64 does not divide into 4 branches and groups=3"):
        ComplexNet(channels=1, num_classes=7, groups=3)
    with pytest.raises(ValueError, match="reduction=8 does not divide width=12"):
        LocalOptimized(channels=1, num_classes=7, width=12)
    with pytest.raises(ValueError, match="num_heads=0 leaves nothing"):
        ConvNetMix(channels=1, num_classes=7, num_heads=0)
    with pytest.raises(ValueError, match="width=24 does not divide into 16, or into groups=4"):
        BottleneckNet(channels=1, num_classes=7, width=24)
    with pytest.raises(ValueError, match="num_classifiers=2: 1, or more with random_classifier=true"):
        MultiScaleNet(channels=1, image_size=8, num_classes=7, num_classifiers=2)
    with pytest.raises(ValueError, match="image_size=4 is too small to be halved three times"):
        MultiScaleNet(channels=1, image_size=4, num_classes=7)
    with pytest.raises(ValueError, match="num_ops=0 is no chain"):
        StatementChain(num_ops=0)
    with pytest.raises(ValueError, match="num_ops=0 is no chain"):
        OpChain(channels=1, image_size=8, num_classes=7, num_ops=0)
    with pytest.raises(ValueError, match="at least 1 token"):
        mlp()(torch.zeros(2, 0, dtype=torch.long))
