"""An exception in one line."""

import pytest
from torch.utils.data import DataLoader

from trainkit.compiler.errors import first_line


def test_an_error_of_torchs_says_where():
    hint = "Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace"
    said = f'NotImplementedError: \n\nfrom user code:\n   File "net.py", line 9, in forward\n    y = f(x)\n\n{hint}\n'
    expected = 'RuntimeError: NotImplementedError: from user code: File "net.py", line 9, in forward'
    assert first_line(RuntimeError(said)) == expected
    assert first_line(RuntimeError(f"backend='x' raised:\nKeyError: \n\n{hint}\n")).endswith("raised: KeyError:")
    assert first_line(RuntimeError("of one line\nand another")) == "RuntimeError: of one line"
    assert first_line(KeyError()) == "KeyError"


class Unreadable:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        raise ArithmeticError("of the data")


def test_an_error_of_a_worker_is_its_own():
    with pytest.raises(ArithmeticError) as caught:
        next(iter(DataLoader(Unreadable(), num_workers=1)))
    assert first_line(caught.value) == "ArithmeticError: of the data"
