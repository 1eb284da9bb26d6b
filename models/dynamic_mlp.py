"""A residual MLP over tokens that takes sequences of any length, to measure how they slow a compiled network."""

import torch.nn.functional as F
from torch import Tensor, nn


class DynamicMLP(nn.Module):
    """Maps tokens [B, T], any T >= 1, to logits: [B, T, num_classes] if next_token, else [B, num_classes].

    It knows no positions and mixes none: next_token=True predicts the next token from token t alone; False
    classifies the mean over the positions, whatever their order. Raises ValueError for an empty sequence.
    """

    def __init__(self, vocab_size: int, num_classes: int, next_token: bool, dim: int = 256, depth: int = 4):
        super().__init__()
        self.next_token = next_token
        self.token = nn.Embedding(vocab_size, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.shape[1] < 1:
            raise ValueError("an empty sequence has no mean; at least 1 token")
        x = self.token(tokens)  # [B, T, dim]
        for block in self.blocks:
            x = block(x)  # [B, T, dim]
        return self.head(x if self.next_token else x.mean(1))  # [B, T, num_classes] or [B, num_classes]


class Block(nn.Module):
    """Linear, LayerNorm and GELU, added to the input: [B, T, dim] -> same."""

    def __init__(self, dim: int):
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.gelu(self.norm(self.linear(x)))
