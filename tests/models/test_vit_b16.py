"""ViT: patches, features, one graph. test_parity compares it with transformers'."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from trainkit.models.vit_b16 import Block, ViT


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def vit(**changes) -> ViT:
    sizes = {"channels": 3, "image_size": 32, "num_classes": 7, "patch_size": 8, "dim": 64, "depth": 3, "num_heads": 4}
    return ViT(**{**sizes, **changes})


def test_norm_eps_is_that_of_every_norm():
    norms = [module for module in vit(norm_eps=1e-3).modules() if isinstance(module, nn.LayerNorm)]
    assert [norm.eps for norm in norms] == [1e-3] * (2 * 3 + 1)


def test_every_patch_is_seen():
    net, images = vit(), torch.randn(2, 3, 32, 32)
    logits = net(images)
    for row in range(0, 32, 8):
        for column in range(0, 32, 8):
            changed = images.clone()
            changed[:, :, row : row + 8, column : column + 8] += 1
            assert (net(changed) != logits).any(1).all()


def test_forward_is_the_head_of_the_features():
    net, images = vit(), torch.randn(2, 3, 32, 32)
    features = net.features(images)
    assert features.shape == (2, 64)
    torch.testing.assert_close(net.head(features), net(images), rtol=0, atol=0)


def test_its_blocks_are_in_a_list_that_is_its_child():
    lists = [child for child in vit().children() if isinstance(child, nn.ModuleList)]
    assert [type(block) for blocks in lists for block in blocks] == [Block] * 3


def test_weights_start_as_those_of_transformers():
    net = vit(dim=128)
    block = net.blocks[0]
    layers = (net.patch, block.attention.qkv, block.attention.project, block.widen, block.shrink)
    for weight in (net.position, *(layer.weight for layer in layers)):
        assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert net.class_token.std().item() == pytest.approx(0.02, rel=0.3)  # of 128 numbers
    assert not any(bias.any() for name, bias in net.named_parameters() if name.endswith("bias"))


def test_dropout_is_in_training_alone():
    net, images = vit(dropout=0.5), torch.randn(2, 3, 32, 32)
    assert not torch.equal(net(images), net(images))
    torch.testing.assert_close(net.eval()(images), net(images), rtol=0, atol=0)


@pytest.mark.parametrize("residual_in_fp32", [True, False])
def test_under_autocast_the_residual_stream_is_of_the_type_asked_for(residual_in_fp32):
    net, images = vit(residual_in_fp32=residual_in_fp32), torch.randn(2, 3, 32, 32)
    seen = []
    for block in net.blocks:
        block.register_forward_hook(lambda module, args, out: seen.append((args[0].dtype, out.dtype)))
    exact = net(images)
    assert set(seen) == {(torch.float32, torch.float32)}
    seen.clear()
    with torch.autocast("cpu", torch.bfloat16):
        coarse = net(images)
    stream = torch.float32 if residual_in_fp32 else torch.bfloat16
    assert set(seen) == {(stream, stream)}
    assert (coarse - exact).norm() < 0.03 * exact.norm()


def test_it_is_one_graph():
    net, counter = vit(dropout=0.1), CompileCounterWithBackend("eager")
    net.compile(backend=counter, fullgraph=True)
    net(torch.randn(2, 3, 32, 32)).sum().backward()
    assert counter.frame_count == 1


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 40, 32), (3, 32, 16)])
def test_images_of_another_size_say_so(shape, compiled):
    net = vit()
    if compiled:
        net.compile(backend="eager")
    with pytest.raises(ValueError, match=r"images of shape \(.*\) do not fit channels=3, image_size=32"):
        net(torch.zeros(2, *shape))


def test_sizes_that_cannot_be_built_say_so():
    with pytest.raises(ValueError, match="patch_size=7 does not divide image_size=32"):
        vit(patch_size=7)
    with pytest.raises(ValueError, match="num_heads=5 does not divide dim=64"):
        vit(num_heads=5)
