"""Constructs that T4 says break a graph, and its rewrites: measurements/claims.yaml says which still do."""

import warnings

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch._dynamo.utils import graph_break_reasons
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan

from tests.conftest import ROOT

PROJECT = nn.Linear(4, 4)
RECURRENCE = nn.GRUCell(4, 4)


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


def tensor_value(x: Tensor) -> Tensor:
    return x * x.sum().item()


def data_loop(x: Tensor) -> Tensor:
    for _ in range(int(x.sum().item()) % 3 + 1):
        x = x.sin()
    return x


def data_shape(x: Tensor) -> Tensor:
    return x[x > 0].sum()


def numpy_operation(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


def numpy_random(x: Tensor) -> Tensor:
    return x * int(np.random.randint(3))


def _own(x: Tensor) -> Tensor:
    return x.sin() + 1


def own_function(x: Tensor) -> Tensor:
    return _own(x).cos()


def layer_in_forward(x: Tensor) -> Tensor:
    return nn.Linear(4, 4)(x)


def layer_per_shape(x: Tensor) -> Tensor:
    return {4: PROJECT}[x.shape[0]](x)


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
    for _ in range(4):
        x = torch.where(x.abs().sum() > 1, x * 0.5, x)
    return x


def all_steps(x: Tensor) -> Tensor:
    steps = [x]
    for _ in range(3):
        steps.append(steps[-1].sin())
    return torch.stack(steps).index_select(0, x.sum().long().reshape(1) % 4)


def scanned(x: Tensor) -> Tensor:
    return scan(lambda total, row: (total + row, total + row.clone()), torch.zeros(4), x)[1]


def associative_scanned(x: Tensor) -> Tensor:
    return associative_scan(torch.add, x, dim=0, combine_mode="generic")


def gru_cell(x: Tensor) -> Tensor:
    return RECURRENCE(x)


def mask(x: Tensor) -> Tensor:
    kept = x > 0
    return (x * kept).sum() / kept.sum()


def sparse_attention(x: Tensor) -> Tensor:
    scores = x @ x.T
    return scores.masked_fill(scores < scores.mean(), float("-inf")).softmax(-1) @ x


def weighted_routing(x: Tensor) -> Tensor:
    return torch.einsum("e,ebc->bc", x.sum(1).softmax(0), torch.stack([x, x.sin(), x.cos(), -x]))


class _Buffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("num_calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.num_calls += 1
        return x * self.num_calls


buffer = _Buffer()

CLAIMS = OmegaConf.to_container(OmegaConf.load(ROOT / "measurements" / "claims.yaml"))
COMMAND = "python -m pytest tests/compiler/test_constructs.py -k "
SHOWN = {claim["command"].removeprefix(COMMAND): claim for claim in CLAIMS if COMMAND in claim.get("command", "")}


@pytest.mark.parametrize("name", SHOWN)
def test_a_construct_breaks_the_graph_where_the_table_of_claims_says_so(name):
    torch._dynamo.reset()
    graph_break_reasons.clear()
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        torch.compile(globals()[name], backend="eager")(torch.ones(4, 4))
    measured = "a graph break" if graph_break_reasons else "one graph"
    assert SHOWN[name]["measured"].startswith(measured)


def test_each_construct_is_in_the_table_of_claims():
    functions = [name for name, value in globals().items() if callable(value) and value.__module__ == __name__]
    assert {name for name in functions if not name.startswith(("_", "test_"))} == set(SHOWN)
