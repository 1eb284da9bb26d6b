"""ResNet-50: equal to the one of transformers, of the published size, for images of any size."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import ResNetConfig, ResNetForImageClassification

from trainkit.models.resnet50 import Bottleneck, ResNet50

DEPTHS = (3, 4, 6, 3)


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)


def resnet50(**changes) -> ResNet50:
    return ResNet50(**{"channels": 3, "num_classes": 7, "width": 8, **changes})


def as_theirs(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights (or gradients, or statistics) of ours under the names of transformers."""
    modules = {"fc": "classifier.1"}  # ours: theirs
    pairs = {("conv", "bn"): "resnet.embedder.embedder"}
    for stage, depth in enumerate(DEPTHS):
        for n in range(depth):
            a, b = f"stage{stage + 1}.{n}", f"resnet.encoder.stages.{stage}.layers.{n}"
            pairs |= {(f"{a}.conv{k + 1}", f"{a}.bn{k + 1}"): f"{b}.layer.{k}" for k in range(3)}
        first = f"stage{stage + 1}.0.shortcut"
        pairs[f"{first}.0", f"{first}.1"] = f"resnet.encoder.stages.{stage}.layers.0.shortcut"
    for (conv, bn), theirs in pairs.items():
        modules |= {conv: f"{theirs}.convolution", bn: f"{theirs}.normalization"}
    split = {name: name.rpartition(".") for name in ours}
    assert {module for module, _, _ in split.values()} == modules.keys()
    return {f"{modules[module]}.{kind}": ours[name] for name, (module, _, kind) in split.items()}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_logits_gradients_and_statistics_are_those_of_transformers(training):
    config = ResNetConfig(embedding_size=8, hidden_sizes=[32, 64, 128, 256], depths=list(DEPTHS), num_labels=7)
    assert (config.layer_type, config.downsample_in_bottleneck) == ("bottleneck", False)  # v1.5
    theirs, ours = ResNetForImageClassification(config).double(), resnet50().double()
    for module in ours.modules():
        if isinstance(module, nn.BatchNorm2d):
            for positive in (module.weight, module.running_var):
                nn.init.uniform_(positive, 0.5, 1.5)
            for any_sign in (module.bias, module.running_mean):
                nn.init.normal_(any_sign, std=0.3)
    copied = as_theirs(ours.state_dict())
    assert copied.keys() == theirs.state_dict().keys()
    theirs.load_state_dict(copied)

    images, targets = torch.randn(4, 3, 47, 66, dtype=torch.double), torch.randint(7, (4,))
    logits, expected = ours.train(training)(images), theirs.train(training)(images).logits
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    for computed in (logits, expected):
        F.cross_entropy(computed, targets).backward()
    gradients = as_theirs({name: weight.grad for name, weight in ours.named_parameters()})
    expected_gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(as_theirs(ours.state_dict()), dict(theirs.state_dict()), rtol=1e-10, atol=1e-10)


def test_it_has_the_parameters_of_the_published_one():
    with torch.device("meta"):
        ours = ResNet50(channels=3, num_classes=1000)
        theirs = ResNetForImageClassification(ResNetConfig(num_labels=1000))
    assert [sum(weight.numel() for weight in net.parameters()) for net in (ours, theirs)] == [25_557_032] * 2


@pytest.mark.parametrize(("height", "width"), [(1, 1), (8, 8), (9, 31), (32, 32), (33, 64)])
def test_it_trains_on_images_of_any_size(height, width):
    net = resnet50(channels=1)
    logits = net(torch.randn(2, 1, height, width))
    assert logits.shape == (2, 7)
    logits.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in net.parameters())


def test_it_halves_the_image_five_times():
    net, shapes = resnet50(), []
    for module in (net.conv, net.pool, net.stage1, net.stage2, net.stage3, net.stage4):
        module.register_forward_hook(lambda _module, _inputs, output: shapes.append(tuple(output.shape[1:])))
    net(torch.randn(2, 3, 64, 64))
    assert shapes == [(8, 32, 32), (8, 16, 16), (32, 16, 16), (64, 8, 8), (128, 4, 4), (256, 2, 2)]


def test_its_blocks_are_in_sequentials_that_are_its_children():
    found = [block for child in resnet50().children() if isinstance(child, nn.Sequential) for block in child]
    assert len(found) == sum(DEPTHS)
    assert all(isinstance(block, Bottleneck) for block in found)


def test_weights_start_as_those_of_torchvision():
    net = resnet50(width=32)
    for conv in (net.conv, net.stage2[1].conv2, net.stage4[0].shortcut[0]):
        fan_out = conv.out_channels * conv.kernel_size[0] ** 2
        assert conv.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    assert all((norm.weight == 1).all() and not norm.bias.any() for norm in norms)
