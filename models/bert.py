"""BERT: the bidirectional encoder of Devlin et al. 2019, with a classifier of sequences on top."""

import torch.nn.functional as F
from torch import Tensor, nn

EPS = 1e-12  # of every LayerNorm


class BERT(nn.Module):
    """Classifies tokens [B, T], T <= seq_len, into logits [B, num_classes].

    Computes the same as transformers' BertForSequenceClassification for one segment: post-norm blocks, exact GELU,
    learned positions, a tanh layer on the first token (Devlin et al. 2019, https://arxiv.org/abs/1810.04805). No
    position attends to one whose attention_mask [B, T] is 0; the first must be 1. Without a mask every position sees
    all others, and attention may choose faster kernels. Raises ValueError for a sequence longer than seq_len, or if
    num_heads does not divide dim.
    """

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        num_classes: int,
        dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.seq_len = seq_len
        self.token = nn.Embedding(vocab_size, dim)
        self.position = nn.Embedding(seq_len, dim)
        self.segment = nn.Embedding(2, dim)  # both rows of the published weights, though only the first is used
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(dim, num_heads, dropout) for _ in range(depth))
        self.pooler = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, num_classes)
        self.apply(_init_weights)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.head(self.features(input_ids, attention_mask))  # [B, num_classes]

    def features(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The input of the head: tokens [B, T] -> [B, dim]."""
        length = input_ids.shape[1]
        if length > self.seq_len:
            raise ValueError(f"a sequence of {length} tokens is longer than seq_len={self.seq_len}")
        position = self.position.weight[:length] + self.segment.weight[0]  # [T, dim]
        x = self.dropout(self.norm(self.token(input_ids) + position))  # [B, T, dim]
        mask = None if attention_mask is None else attention_mask[:, None, None].bool()  # [B, 1, 1, T]
        for block in self.blocks:
            x = block(x, mask)  # [B, T, dim]
        return self.dropout(self.pooler(x[:, 0]).tanh())


class Block(nn.Module):
    """Attention and a four times wider GELU feed-forward, each added to its input, then LayerNorm.

    x [B, T, dim] -> same; nobody attends to a position whose mask [B, 1, 1, T] is false.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.attention = Attention(dim, num_heads, dropout)
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.widen = nn.Linear(dim, 4 * dim)
        self.shrink = nn.Linear(4 * dim, dim)
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        return self.norm2(x + self.dropout(self.shrink(F.gelu(self.widen(x)))))


class Attention(nn.Module):
    """Multi-head self-attention [B, T, dim] -> [B, T, dim] to the positions of a mask [B, 1, 1, T], or to all."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide dim={dim}")
        self.num_heads = num_heads
        self.dropout = nn.Dropout(dropout)  # of the attention's weights, within the kernel
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # [B, T, 3, heads, dim/heads]
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, heads, T, dim/heads]
        dropout = self.dropout.p if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return self.project(x.transpose(1, 2).flatten(2))  # [B, T, dim]


def _init_weights(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
