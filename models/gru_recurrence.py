"""Control flow: a recurrent layer of torch.nn, and its cell step by step."""

import torch
from torch import Tensor, nn


class GRURecurrence(nn.Module):
    """Classifies tokens [B, T] of any T into logits [B, num_classes], by the last state of a GRU.

    rewritten=False: nn.GRU, which torch.compile leaves to eager with the function that calls it. True: nn.GRUCell for
    one position after another, which torch.compile unrolls into one graph that grows with T; same numbers from the
    same weights, whose names lack the layer's suffix `_l0`.
    """

    gru: nn.GRU | nn.GRUCell

    def __init__(self, vocab_size: int, num_classes: int, dim: int = 128, rewritten: bool = True):
        super().__init__()
        self.rewritten = rewritten
        self.token = nn.Embedding(vocab_size, dim)
        if rewritten:
            self.gru = nn.GRUCell(dim, dim)
        else:
            self.gru = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)  # [B, T, dim]
        state = self.steps(x) if self.rewritten else self.gru(x)[1][0]  # [B, dim]
        return self.head(state)  # [B, num_classes]

    def steps(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = self.gru(x[:, t], state)
        return state
