"""Constructs in a forward pass of a tensor [4, 4]: those said to break a graph, and their rewrites.

measurements/constructs.yaml has their outcomes under several versions of torch.
"""

import contextlib
import copy
import io
import logging
import os
import random
import warnings
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from trainkit.compiler.private_names import require

while_loop, scan, associative_scan = require("while_loop"), require("scan"), require("associative_scan")
logger = logging.getLogger(__name__)

# What tutorials say breaks a graph.


def list_building(x: Tensor) -> Tensor:
    products = []
    for number in range(3):
        products.append(x * number)
    return torch.stack(products).sum(0)


def dictionary(x: Tensor) -> Tensor:
    features = {"sin": x.sin(), "cos": x.cos()}
    return torch.stack([features[name] for name in features])


def print_call(x: Tensor) -> Tensor:
    y = x.sin()
    print(end="")
    return y.cos()


def tensor_branch(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x.sin()
    return x.cos()


def sample_branch(x: Tensor) -> Tensor:
    rows = []
    for row in x:
        if row.sum() > 0:
            rows.append(row.sin())
        else:
            rows.append(row.cos())
    return torch.stack(rows)


def tensor_value(x: Tensor) -> Tensor:
    return x * x.sum().item()


def data_loop(x: Tensor) -> Tensor:
    for _ in range(int(x.sum().item()) % 3 + 1):
        x = x.sin()
    return x


def data_shape(x: Tensor) -> Tensor:
    return x[x > 0].sum()


def numpy_operation(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.detach().numpy()))


def numpy_random(x: Tensor) -> Tensor:
    return x * int(np.random.randint(3))


def _own(x: Tensor) -> Tensor:
    return x.sin() + 1


def own_function(x: Tensor) -> Tensor:
    return _own(x).cos()


def layer_in_forward(x: Tensor) -> Tensor:
    return nn.Linear(4, 4)(x)


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.num_calls += 1
        return x * self.num_calls


# Others that diagnose has remedies for.


def python_random(x: Tensor) -> Tensor:
    return x * random.random()


def logging_call(x: Tensor) -> Tensor:
    logger.info("mean")
    return x.sin()


def warning_call(x: Tensor) -> Tensor:
    warnings.warn("mean", stacklevel=1)
    return x.sin()


def clock_reading(x: Tensor) -> Tensor:
    return x * os.times().elapsed


def file_opening(x: Tensor) -> Tensor:
    open(os.devnull).close()
    return x.sin()


def deep_copy(x: Tensor) -> Tensor:
    return copy.deepcopy(x.detach()) + x


def one_hot_without_classes(x: Tensor) -> Tensor:
    return nn.functional.one_hot(x.argmax(1)).float() + 0


def tensor_to_list(x: Tensor) -> Tensor:
    return x * sum(x[0].tolist())


def shape_reading(x: Tensor) -> Tensor:
    if x.shape[0] > 2:
        return x / x.shape[0]
    return x


def exception_handling(x: Tensor) -> Tensor:
    try:
        return x.sin()
    except ValueError:
        return x


def python_sort(x: Tensor) -> Tensor:
    return torch.stack(sorted(x[0].unbind()))


def data_attribute(x: Tensor) -> Tensor:
    y = x.sin()
    y.data = y.data + 1
    return y


def requires_grad_setting(x: Tensor) -> Tensor:
    y = x.detach()
    y.requires_grad = True
    return y.sin()


def gradient_in_forward(x: Tensor) -> Tensor:
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        y.sin().sum().backward()
    assert y.grad is not None
    return y.grad + x


def generator_draw(x: Tensor) -> Tensor:
    return x * torch.rand(4, 4, generator=torch.Generator().manual_seed(0))


def _multiples(x: Tensor) -> Iterator[Tensor]:
    for number in range(3):
        yield x * number


def python_generator(x: Tensor) -> Tensor:
    return torch.stack(list(_multiples(x))).sum(0)


def packed_sequence(x: Tensor) -> Tensor:
    packed = nn.utils.rnn.pack_padded_sequence(x.unsqueeze(2), torch.tensor([4, 3, 2, 1]), batch_first=True)
    return packed.data.sin()


def context_manager(x: Tensor) -> Tensor:
    with contextlib.redirect_stdout(io.StringIO()):
        return x.sin()


def library_call(x: Tensor) -> Tensor:
    return x * (zlib.crc32(b"a") % 3)


# What to write instead.


def where(x: Tensor) -> Tensor:
    return torch.where(x.sum() > 0, x.sin(), x.cos())


def where_per_sample(x: Tensor) -> Tensor:
    return torch.where(x.sum(1, keepdim=True) > 0, x.sin(), x.cos())


def weighted_branches(x: Tensor) -> Tensor:
    share = torch.sigmoid(x.sum())
    return share * x.sin() + (1 - share) * x.cos()


def cond(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def masked_loop(x: Tensor) -> Tensor:
    count = x.sum().long() % 3 + 1
    for step in range(3):
        x = torch.where(step < count, x.sin(), x)
    return x


def all_steps(x: Tensor) -> Tensor:
    count = x.sum().long() % 3 + 1
    steps = [x.sin()]
    for _ in range(2):
        steps.append(steps[-1].sin())
    return torch.stack(steps).index_select(0, count.reshape(1) - 1)[0]


def looped_while(x: Tensor) -> Tensor:
    count = x.sum().long() % 3 + 1
    start = torch.zeros_like(count)
    return while_loop(lambda done, _: done < count, lambda done, x: (done + 1, x.sin()), (start, x))[1]


def data_sum(x: Tensor) -> Tensor:
    total = torch.zeros_like(x)
    for _ in range(int(x.sum().item()) % 3 + 2):
        total = 0.5 * total + x
    return total


def looped_while_from_zeros(x: Tensor) -> Tensor:
    count = x.sum().long() % 3 + 2
    start = torch.zeros_like(count), torch.zeros_like(x)
    return while_loop(lambda done, _: done < count, lambda done, total: (done + 1, 0.5 * total + x), start)[1]


def looped_sum(x: Tensor) -> Tensor:
    total, totals = torch.zeros_like(x[0]), []
    for row in x:
        total = 0.5 * total + row
        totals.append(total)
    return torch.stack(totals)


def _scanned_from(start: Tensor, x: Tensor) -> Tensor:
    def step(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        total = 0.5 * total + row
        return total, total.clone()

    return scan(step, start, x)[1]


def scanned(x: Tensor) -> Tensor:
    return _scanned_from(0 * x[0], x)


def scanned_from_zeros(x: Tensor) -> Tensor:
    return _scanned_from(torch.zeros_like(x[0]), x)


def associative_scanned(x: Tensor) -> Tensor:
    def joined(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return left[0] * right[0], left[1] * right[0] + right[1]

    return associative_scan(joined, (torch.full_like(x, 0.5), x), dim=0, combine_mode="generic")[1]


def prefix_sum(x: Tensor) -> Tensor:
    return x.cumsum(0)


def mask(x: Tensor) -> Tensor:
    return (x * (x > 0)).sum()


def sparse_attention(x: Tensor) -> Tensor:
    scores = x @ x.T
    return scores.masked_fill(scores < scores.mean(), float("-inf")).softmax(-1) @ x


def weighted_routing(x: Tensor) -> Tensor:
    return torch.einsum("e,ebc->bc", x.sum(1).softmax(0), torch.stack([x, x.sin(), x.cos(), -x]))


class _LayerPerShape(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sizes = [8, 4]
        self.layers = nn.ModuleList(nn.Linear(size, 4) for size in self.sizes)

    def forward(self, x: Tensor) -> Tensor:
        layer: Tensor = self.layers[self.sizes.index(x.shape[1])](x)
        return layer


class _Buffer(nn.Module):
    num_calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("num_calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.num_calls = self.num_calls + 1
        return x * self.num_calls


class _Recurrent(nn.Module):
    """The states of nn.GRU over the rows, which are one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.gru(x)[0]
        return states


class _Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        state, states = torch.zeros(4), []
        for row in x:
            state = self.cell(row, state)
            states.append(state)
        return torch.stack(states)


MODULES: dict[str, type[nn.Module]] = {
    "attribute_counter": _Counter,
    "buffer": _Buffer,
    "layer_per_shape": _LayerPerShape,
    "recurrent_layer": _Recurrent,
    "gru_cell": _Cells,
}


def construct_named(name: str) -> Callable[[Tensor], Tensor]:
    """The construct of this name, a new one if it is a module. Raises KeyError for an unknown name."""
    if name in MODULES:
        return MODULES[name]()
    function: Callable[[Tensor], Tensor] = globals()[name]
    return function
