"""The optimizer's state of all parameters, which checkpoints have, from that of the ranks' shares, and back.

A state is what `Optimizer.state_dict()` returns. `groups` are the parameters of each group of the optimizer, `buckets`
those in which they lie.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from torch import Tensor, nn

from trainkit.distributed.buckets import Bucket, gather_shares, own_share

State = dict[str, Any]


def whole_state(shares: State, groups: Sequence[Sequence[nn.Parameter]], buckets: Sequence[Sequence[Bucket]]) -> State:
    """The state of an optimizer of all parameters. All ranks call it."""
    states: dict[nn.Parameter, State] = {}
    for key, bucket in enumerate(chain.from_iterable(buckets)):
        for name, value in shares["state"].get(key, {}).items():
            values = [value] * len(bucket.parameters)
            if isinstance(value, Tensor):
                if value.shape == bucket.share.shape:
                    values = bucket.layout.split(gather_shares(value))
                values = [copy.clone() for copy in values]
            for parameter, copy in zip(bucket.parameters, values, strict=True):
                states.setdefault(parameter, {})[name] = copy
    return _numbered(states, shares["param_groups"], groups)


def own_state(whole: State, groups: Sequence[Sequence[nn.Parameter]], buckets: Sequence[Sequence[Bucket]]) -> State:
    """The state of the optimizer of this rank's shares."""
    keys = chain.from_iterable(group["params"] for group in whole["param_groups"])
    states_of_all: dict[nn.Parameter, State] = {}
    for parameter, key in zip(chain.from_iterable(groups), keys, strict=True):
        states_of_all[parameter] = whole["state"].get(key, {})
    states: dict[nn.Parameter, State] = {}
    for bucket in chain.from_iterable(buckets):
        states[bucket.share] = _state_of_share(bucket, [states_of_all[parameter] for parameter in bucket.parameters])
    shares = [[bucket.share for bucket in buckets_of_group] for buckets_of_group in buckets]
    return _numbered(states, whole["param_groups"], shares)


def _state_of_share(bucket: Bucket, states: Sequence[State]) -> State:
    own: State = {}
    for name, value in states[0].items():
        own[name] = value
        if isinstance(value, Tensor) and name != "step":  # which is a number of its own, as a tensor
            own[name] = own_share(bucket.layout.join([state[name] for state in states])).clone()
    return own


def _numbered(
    states: dict[nn.Parameter, State], settings: Sequence[State], groups: Sequence[Sequence[nn.Parameter]]
) -> State:
    """The states by the numbers that torch gives parameters, in the order of groups; empty ones are left out."""
    numbers = {parameter: number for number, parameter in enumerate(chain.from_iterable(groups))}
    param_groups = []
    for group, parameters in zip(settings, groups, strict=True):
        param_groups.append(group | {"params": [numbers[parameter] for parameter in parameters]})
    numbered = {number: states[parameter] for parameter, number in numbers.items() if states.get(parameter)}
    return {"state": numbered, "param_groups": param_groups}
