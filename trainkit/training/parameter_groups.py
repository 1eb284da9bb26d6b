"""Parameters that an optimizer treats alike: functions for `optimizer.groups._target_`, network -> parameter groups."""

from typing import Any

from torch import nn

Groups = list[dict[str, Any]]  # as torch.optim takes them


def decay_matrices(network: nn.Module) -> Groups:
    """Weight decay for parameters of two and more dimensions alone: norms and biases have one."""
    parameters = list(network.parameters())
    return [
        {"params": [parameter for parameter in parameters if parameter.ndim >= 2]},
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0},
    ]


def hidden_matrices(network: nn.Module) -> Groups:
    """The real matrices between embeddings and the last nn.Linear, marked for MuonAndAdamW, and the other parameters:
    of these, the ones with fewer than two dimensions have no weight decay."""
    linears = []
    outer = set()
    for module in network.modules():
        if isinstance(module, nn.Linear):
            linears.append(module)
        if isinstance(module, nn.Embedding):
            outer.add(module.weight)
    if linears:
        outer.add(linears[-1].weight)
    groups: Groups = [
        {"params": [], "is_hidden": True},
        {"params": [], "is_hidden": False},
        {"params": [], "is_hidden": False, "weight_decay": 0.0},
    ]
    for parameter in network.parameters():
        if parameter.ndim < 2:
            kind = 2
        elif parameter.ndim > 2 or parameter.is_complex() or parameter in outer:
            kind = 1
        else:
            kind = 0
        groups[kind]["params"].append(parameter)
    return groups
