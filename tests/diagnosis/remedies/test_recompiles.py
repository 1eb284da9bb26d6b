"""Guards of torch 2.11 and 2.13 that failed, and their remedies."""

import random

import pytest

from trainkit.diagnosis.remedies.matching import matching
from trainkit.diagnosis.remedies.recompiles import RECOMPILE_REMEDIES, guard_message, remedy_for_recompile

RECOMPILES = [
    ("0/0: tensor 'x' size mismatch at index 0. expected 16, actual 9", "shape that changes"),
    (
        "0/0: 2 <= inputs.size()[0] <= 32  # y = f(x)  # net.py:5 in forward (user code shown is ...)",
        "size out of bounds",
    ),
    ("0/0: L['x'].size()[0] <= 32  # if x.shape[0] > 32:  # net.py:5 in forward", "size out of bounds"),
    ("0/0: 33 <= x.size()[0]  # if x.shape[0] > 32:  # net.py:5 in forward", "size out of bounds"),
    ("0/0: x.size()[1] == x.size()[0]  # duck sizing added this equality", "sizes that were equal"),
    ("0/0: L['x'].size()[2] == L['y'].size()[0]  # duck sizing added this equality", "sizes that were equal"),
    ("0/0: (x.size()[0] % 8) == 0  # if x.shape[0] % 8 == 0:", "shape that changes"),
    ("0/0: tensor 'x' rank mismatch. expected 2, actual 3", "number of dimensions that changes"),
    ("0/0: tensor 'x' stride mismatch at index 0. expected 8, actual 1", "strides that change"),
    ("0/0: tensor 'x' dtype mismatch. expected Float, actual Double", "dtype or device that changes"),
    ("0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0", "requires_grad or grad mode that changes"),
    ("0/0: GLOBAL_STATE changed: grad_mode ", "requires_grad or grad mode that changes"),
    ("0/0: GLOBAL_STATE changed: autocast ", "global state of torch that changes"),
    ("0/0: tensor 'self._modules['fc']._parameters['bias']' size mismatch at index 0.", "module of another size"),
    ("1/0: tensor 'self._buffers['scale']' size mismatch at index 0. expected 5, actual 7", "module of another size"),
    (
        "0/0: self.temperature == 1.0  # self.temperature *= 0.99  # net.py:5 in forward",
        "number in an attribute that changes",
    ),
    ("0/0: self.net.rate == -1e-05  # self.rate *= 0.99  # net.py:5 in forward", "number in an attribute that changes"),
    (
        "0/1: (0.95*self._modules['net']._modules['drop'].p) == 0.45125  # F.dropout(y, self.p)",
        "number in an attribute that changes",
    ),
    ("0/0: self._modules['net'].rates['a'] == 0.5  # y * self.rates['a']", "number in an attribute that changes"),
    ("0/0: self._modules['net'].seen == ()  # self.seen += (1,)", "list, tuple, dict or set that changes"),
    ("0/0: d != 0  # if d == 0:", "argument or global number that changes"),
    ("0/0: not hasattr(self._modules['net'], 'h')  # if not hasattr(self, 'h'):", "attribute that changes"),
    ("0/0: self._modules['net'].flip == False  # self.flip = not self.flip", "attribute that changes"),
    ("0/0: self._modules['net'].tag == 'a'  # self.tag += 'a'", "attribute that changes"),
    ("0/0: self._modules['net'].h is None  # if self.h is None:", "attribute that changes"),
    ("0/0: not ___dict_contains((16, 10), self._modules['net'].cache)  # if key not in self.cache:", "dict that grows"),
    ("0/0: self.training == True", "train() and eval()"),
    ("0/0: self.net.calls == 0   # self.calls += 1  # net.py:5 in forward (INTEGER_HINT: ...)", "attribute counter"),
    ("0/0: self._modules['net'].calls == 0  # self.calls += 1  # net.py:5 in forward", "attribute counter"),
    ("0/0: not self._modules['net'].seen  # self.seen.append(y)", "list, tuple, dict or set that changes"),
    ("0/1: len(self.net.seen) == 1  # self.seen.append(y)", "list, tuple, dict or set that changes"),
    ("0/0: self._modules['net'].seen == set()  # self.seen.add(n)", "list, tuple, dict or set that changes"),
    ("0/0: k == 3  # return x * k  # net.py:9 in forward", "argument or global number that changes"),
    ("0/0: L['k'] == 3  # return x * k  # net.py:9 in forward", "argument or global number that changes"),
    ("0/0: G['net'].CALLS == 1  # CALLS += 1", "argument or global number that changes"),
    (
        "2/0: ___stack0 == -3.79  # return y * s  # net.py:22 in torch_dynamo_resume_in_forward_at_21",
        "value that a graph break brought back",
    ),
    (
        "2/0: order[0] == 4  # return y[order]  # net.py:61 in torch_dynamo_resume_in_forward_at_60",
        "value that a graph break brought back",
    ),
    (
        "2/0: tensor '___stack0' size mismatch at index 0. expected 76, actual 70",
        "value that a graph break brought back",
    ),
    ("0/0: ___check_obj_id(self.f, 94)", "another object than before"),
]


@pytest.mark.parametrize(("reason", "cause"), RECOMPILES)
def test_a_recompile_has_exactly_one_remedy(reason, cause):
    assert [remedy.cause for remedy in matching(RECOMPILE_REMEDIES, *guard_message(reason))] == [cause]
    assert remedy_for_recompile(reason).cause == cause


def test_the_order_of_the_remedies_changes_nothing():
    for seed in range(5):
        shuffled = random.Random(seed).sample(RECOMPILE_REMEDIES, len(RECOMPILE_REMEDIES))
        for reason, cause in RECOMPILES:
            (remedy,) = matching(shuffled, *guard_message(reason))
            assert remedy.cause == cause


def test_a_size_that_changes_with_dynamic_shapes_is_fixed_by_the_network():
    reason = "0/0: x.size()[0] == 16  # for k in range(x.shape[0]):"
    causes = [remedy_for_recompile(reason, dynamic).cause for dynamic in (True, False, None)]
    assert causes == ["size that the network fixes", "shape that changes", "shape that changes"]


def test_the_size_of_a_tensor_that_a_break_brought_back_is_the_constant():
    remedy = remedy_for_recompile("2/0: tensor '___stack1' size mismatch at index 0. expected 256, actual 247")
    assert "for a tensor: its size" in remedy.why


def test_an_unknown_guard_has_a_remedy():
    assert remedy_for_recompile("0/0: something new").cause == "guard that failed"
