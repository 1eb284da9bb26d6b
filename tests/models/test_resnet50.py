"""ResNet-50: images of any size, its blocks, its initialization. test_parity compares it with transformers'."""

import pytest
import torch
from torch import nn

from trainkit.models.resnet50 import Bottleneck, ResNet50

DEPTHS = (3, 4, 6, 3)


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)


def resnet50(**changes) -> ResNet50:
    return ResNet50(**{"channels": 3, "num_classes": 7, "width": 8, **changes})


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
