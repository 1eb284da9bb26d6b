"""A small transformer: a language model or a sequence classifier, by one argument."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PADDING = 0  # the token, as data.pad_token


class MiniTransformer(nn.Module):
    """Maps tokens [B, T], T <= seq_len, to logits: [B, T, num_classes] if next_token, else [B, num_classes].

    next_token=True: causal, position t sees tokens 0..t. False: every position sees all, and the mean over positions
    is classified. A mask [B, T, T] further leaves each position only what is true in its row; padding_mask=True makes
    one from the tokens if none is given: a position sees no padding but itself. Pre-norm blocks, learned positions and
    initialisation of GPT-2 (Radford et al. 2019). Raises ValueError for a sequence longer than seq_len, or if num_heads
    does not divide dim.
    """

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        num_classes: int,
        next_token: bool,
        dim: int = 128,
        depth: int = 2,
        num_heads: int = 4,
        dropout: float = 0.0,
        padding_mask: bool = False,
    ):
        super().__init__()
        self.seq_len, self.next_token, self.padding_mask = seq_len, next_token, padding_mask
        self.token = nn.Embedding(vocab_size, dim)
        self.position = nn.Embedding(seq_len, dim)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(dim, num_heads, dropout, causal=next_token) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)
        self.apply(_init_weights)
        for name, weight in self.named_parameters():
            if name.endswith(("project.weight", "shrink.weight")):  # 2 depth of them add up in the residual stream
                nn.init.normal_(weight, std=0.02 / (2 * depth) ** 0.5)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        length = tokens.shape[1]
        if length > self.seq_len:
            raise ValueError(f"a sequence of {length} tokens is longer than seq_len={self.seq_len}")
        if mask is None and self.padding_mask:
            mask = _padding_mask(tokens)
        x = self.dropout(self.token(tokens) + self.position.weight[:length])  # [B, T, dim]
        for block in self.blocks:
            x = block(x, mask)  # [B, T, dim]
        x = self.norm(x)
        return self.head(x if self.next_token else x.mean(1))  # [B, T, num_classes] or [B, num_classes]


class Block(nn.Module):
    """Pre-norm attention and a four times wider GELU feed-forward, each added to the stream: [B, T, dim] -> same."""

    def __init__(self, dim: int, num_heads: int, dropout: float, causal: bool):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim, num_heads, dropout, causal)
        self.norm2 = nn.LayerNorm(dim)
        self.widen = nn.Linear(dim, 4 * dim)
        self.shrink = nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x), mask))
        return x + self.dropout(self.shrink(F.gelu(self.widen(self.norm2(x)))))


class Attention(nn.Module):
    """Multi-head self-attention [B, T, dim] -> [B, T, dim] (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762).

    A position sees the positions that are true in its row of mask [B, T, T], and if causal none after itself.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, causal: bool):
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide dim={dim}")
        self.num_heads, self.causal = num_heads, causal
        self.dropout = nn.Dropout(dropout)  # of the attention's weights, within the kernel
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # [B, T, 3, heads, dim/heads]
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, heads, T, dim/heads]
        dropout = self.dropout.p if self.training else 0.0
        if mask is None:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)
        else:
            if self.causal:
                mask = mask.tril()
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], dropout_p=dropout)
        return self.project(x.transpose(1, 2).flatten(2))  # [B, T, dim]


def _padding_mask(tokens: Tensor) -> Tensor:
    """tokens [B, T] -> mask [B, T, T], true where a position sees another: itself, and each that is no padding."""
    itself = torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
    return (tokens != PADDING)[:, None, :] | itself


def _init_weights(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
