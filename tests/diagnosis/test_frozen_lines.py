"""A frozen line computes the constant that it was, and the function runs its own code again afterwards."""

import gc
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests import defects
from trainkit.diagnosis.frozen_lines import NotConstantError, frozen

SOURCE = defects.__file__
SIZES = {"channels": 1, "image_size": 8, "num_classes": 10}


def line(words: str, file: str = SOURCE) -> int:
    lines = Path(file).read_text().splitlines()
    return next(number for number, text in enumerate(lines, 1) if words in text)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("TensorBranch", "if logits.sum() > 0:"),
        ("Item", "largest = logits"),
        ("Print", "print(logits.mean()"),
        ("NumpyRandom", "if np.random.rand()"),
        ("DataLoop", "for k in range(int("),
        ("CExtension", 'salt = zlib.crc32(b"digits") % 3  # '),
    ],
)
def test_a_frozen_line_no_longer_breaks_the_graph(name, words):
    net, images = getattr(defects, name)(**SIZES), torch.randn(4, 1, 8, 8)
    torch.manual_seed(0)
    code = type(net).forward.__code__
    outputs: list[Tensor] = []
    with frozen(SOURCE, line(words), lambda: outputs.append(net(images))):
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        assert torch.equal(compiled(images), outputs[0])  # in one graph
        assert type(net).forward.__code__ is not code
    assert type(net).forward.__code__ is code
    torch._dynamo.reset()


def test_private_names_and_super_keep_their_meaning():
    net, images = defects.Private(**SIZES), torch.randn(4, 1, 8, 8)
    expected = net(images)
    with frozen(SOURCE, line("# a private name"), lambda: net(images)):
        assert torch.equal(torch.compile(net, backend="eager", fullgraph=True)(images), expected)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "words", ["positive = logits[logits > 0]", "while logits.norm() > 1:", "logits = doubled(logits)"]
)
def test_a_line_without_a_constant_value_cannot_be_frozen(words):
    name = {"pos": "BooleanMask", "whi": "While", "log": "Disabled"}[words[:3]]
    net, images = getattr(defects, name)(**SIZES), 20 * torch.randn(4, 1, 8, 8)
    with (
        pytest.raises(NotConstantError, match="result is a tensor"),
        frozen(SOURCE, line(words), lambda: net(images)),
    ):
        pass


def test_a_failure_within_restores_the_code():
    net, images = defects.Item(**SIZES), torch.randn(4, 1, 8, 8)
    code = type(net).forward.__code__
    with pytest.raises(ArithmeticError), frozen(SOURCE, line("largest = logits"), lambda: net(images)):
        raise ArithmeticError
    assert type(net).forward.__code__ is code


def test_a_function_that_the_garbage_collector_does_not_track_is_found():
    gc.freeze()  # as cli.importing does
    net, images = defects.Item(**SIZES), torch.randn(4, 1, 8, 8)
    with frozen(SOURCE, line("largest = logits"), lambda: net(images)):
        pass
    assert gc.get_freeze_count() == 0


def scaling_by(factor: float):
    """A function with a free variable, which only the caller holds."""

    def scaled(x: Tensor) -> Tensor:
        if x.sum() > 0:  # in a closure
            x = x * factor
        return x

    return scaled


def test_all_closures_of_a_line_are_frozen():
    doubled, halved = scaling_by(2.0), scaling_by(0.5)
    with frozen(__file__, line("> 0:  # in a", __file__), lambda: doubled(torch.ones(3))):
        assert torch.equal(halved(-torch.ones(3)), -torch.ones(3) / 2)
    assert torch.equal(halved(-torch.ones(3)), -torch.ones(3))


def test_recording_leaves_no_global_behind():
    names = set(vars(defects))
    net, images = defects.Item(**SIZES), torch.randn(4, 1, 8, 8)
    with frozen(SOURCE, line("largest = logits"), lambda: net(images)):
        assert set(vars(defects)) == names
