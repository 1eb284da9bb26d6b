"""A line whose outcome is held still computes what it did, and the code is afterwards what it was."""

import gc

import pytest
import torch
from torch import Tensor

from tests import defects
from trainkit.diagnosis.frozen_lines import NoOutcomeError, held_still

SOURCE = defects.__file__
SIZES = {"channels": 1, "image_size": 8, "num_classes": 10}


def line(words: str) -> int:
    return next(n for n, text in enumerate(open(SOURCE), start=1) if words in text)


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
def test_the_outcome_stays_what_it_was_whatever_the_inputs(name, words):
    net, images = getattr(defects, name)(**SIZES), torch.randn(4, 1, 8, 8)
    torch.manual_seed(0)
    code = type(net).forward.__code__
    seen: list[Tensor] = []
    with held_still(SOURCE, line(words), lambda: seen.append(net(images))):
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        assert torch.equal(compiled(images), seen[0])  # in one graph
        assert type(net).forward.__code__ is not code
    assert type(net).forward.__code__ is code
    torch._dynamo.reset()


def test_private_names_of_a_class_and_super_are_what_they_were():
    net, images = defects.Private(**SIZES), torch.randn(4, 1, 8, 8)
    expected = net(images)
    with held_still(SOURCE, line("# a private name"), lambda: net(images)):
        assert torch.equal(torch.compile(net, backend="eager", fullgraph=True)(images), expected)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "words", ["positive = logits[logits > 0]", "while logits.norm() > 1:", "logits = doubled(logits)"]
)
def test_a_line_without_one_outcome_says_so(words):
    name = {"pos": "BooleanMask", "whi": "While", "log": "Disabled"}[words[:3]]
    net, images = getattr(defects, name)(**SIZES), 20 * torch.randn(4, 1, 8, 8)
    with (
        pytest.raises(NoOutcomeError, match="result is a tensor"),
        held_still(SOURCE, line(words), lambda: net(images)),
    ):
        pass


def test_a_failure_inside_leaves_the_code_as_it_was():
    net, images = defects.Item(**SIZES), torch.randn(4, 1, 8, 8)
    code = type(net).forward.__code__
    with pytest.raises(ArithmeticError), held_still(SOURCE, line("largest = logits"), lambda: net(images)):
        raise ArithmeticError
    assert type(net).forward.__code__ is code


def test_a_function_of_what_was_imported_out_of_sight_of_gc_is_found():
    gc.freeze()  # as cli.importing does
    net, images = defects.Item(**SIZES), torch.randn(4, 1, 8, 8)
    with held_still(SOURCE, line("largest = logits"), lambda: net(images)):
        pass
    assert gc.get_freeze_count() == 0
