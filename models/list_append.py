"""Control flow: a list that a loop over the positions appends to, and the same recurrence as one matrix product."""

import torch
from torch import Tensor, nn


class ListAppend(nn.Module):
    """Classifies tokens [B, T] of any T into logits [B, num_classes].

    The state decays and takes in one token after another, s_t = decay s_{t-1} + x_t; the mean of all
    states is classified. rewritten=False: a loop in Python appends each state to a list, which torch.compile unrolls:
    the graph grows with T, and is compiled anew for each T. True: all states at once, by the closed form of that scan,
    s = D x with D[t, u] = decay^(t - u) for u <= t; same numbers.
    """

    def __init__(self, vocab_size: int, num_classes: int, dim: int = 128, decay: float = 0.9, rewritten: bool = True):
        super().__init__()
        self.decay, self.rewritten = decay, rewritten
        self.token = nn.Embedding(vocab_size, dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)  # [B, T, dim]
        states = self.scan(x) if self.rewritten else self.loop(x)  # [B, T, dim]
        return self.head(states.mean(1))  # [B, num_classes]

    def loop(self, x: Tensor) -> Tensor:
        states, state = [], torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = self.decay * state + x[:, t]
            states.append(state)
        return torch.stack(states, 1)

    def scan(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1], device=x.device)
        age = (at[:, None] - at).clamp(min=0)  # [T, T]
        weights = (self.decay ** age.to(x.dtype)).tril()
        return weights @ x
