"""Control flow: attention to the pairs of positions that a threshold selects, and to all of them under a mask."""

import torch
from torch import Tensor, nn


class SparseAttention(nn.Module):
    """Classifies tokens [B, T] of any T into logits [B, num_classes].

    A position attends to those whose score is not below the mean of its scores. rewritten=False: these pairs are
    selected, a tensor of a shape that only the data tell, which breaks the graph. True: the other scores become minus
    infinity; one graph, same numbers.
    """

    def __init__(self, vocab_size: int, num_classes: int, dim: int = 128, rewritten: bool = True):
        super().__init__()
        self.rewritten = rewritten
        self.token = nn.Embedding(vocab_size, dim)
        self.query, self.key = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)  # [B, T, dim]
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[-1] ** 0.5  # [B, T, T]
        kept = scores >= scores.mean(-1, keepdim=True)
        attended = self.masked(scores, kept, x) if self.rewritten else self.selected(scores, kept, x)  # [B, T, dim]
        return self.head(attended.mean(1))  # [B, num_classes]

    def selected(self, scores: Tensor, kept: Tensor, x: Tensor) -> Tensor:
        sample, query, key = kept.nonzero(as_tuple=True)  # each [pairs]
        weights = (scores - scores.amax(-1, keepdim=True).detach())[kept].exp()
        row = sample * x.shape[1] + query
        totals = weights.new_zeros(x.shape[0] * x.shape[1]).index_add(0, row, weights)
        values = weights[:, None] * x[sample, key]
        summed = torch.zeros_like(x).flatten(0, 1).index_add(0, row, values)
        return (summed / totals[:, None]).view_as(x)

    def masked(self, scores: Tensor, kept: Tensor, x: Tensor) -> Tensor:
        return scores.masked_fill(~kept, float("-inf")).softmax(-1) @ x
