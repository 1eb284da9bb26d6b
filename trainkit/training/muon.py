"""Muon beside AdamW, as one optimizer."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer


class MuonAndAdamW(Optimizer):
    """Muon (Jordan et al. 2024) for the parameter groups with `is_hidden`, whose parameters are matrices; AdamW for the
    others.

    Muon's steps are scaled to the size of AdamW's (`adjust_lr_fn="match_rms_adamw"`), so that one learning rate and one
    weight decay suit both. State and parameter groups are shared with the two: a schedule and a checkpoint see one
    optimizer. Raises ValueError for a hidden parameter that is no matrix.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        fused: bool | None = None,
    ):
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "fused": fused, "is_hidden": False}
        super().__init__(params, defaults | {"betas": betas})
        self._share()

    def _share(self) -> None:
        """Make the two optimizers of the present parameter groups and state."""
        self._optimizers: list[Optimizer] = []
        hidden = [group for group in self.param_groups if group["is_hidden"] and group["params"]]
        plain = [group for group in self.param_groups if not group["is_hidden"] and group["params"]]
        if hidden:
            self._optimizers.append(Muon(hidden, adjust_lr_fn="match_rms_adamw"))
        if plain:
            self._optimizers.append(AdamW(plain))
        for optimizer in self._optimizers:
            optimizer.state = self.state

    def __setstate__(self, state: dict[str, Any]) -> None:  # of a checkpoint or a copy
        super().__setstate__(state)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in self._optimizers:
            optimizer.step()
        return loss
