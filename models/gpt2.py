"""GPT-2: the language model of Radford et al. 2019, in its four published sizes and any other."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GPT2(nn.Module):
    """Maps tokens [B, T], T <= seq_len, to logits [B, T, rows] of each position's next token; t sees tokens 0..t.

    Computes the same as transformers' GPT2LMHeadModel: pre-norm blocks, tanh-approximated GELU, learned positions,
    the head's weight that of the token embedding (Radford et al. 2019, "Language Models are Unsupervised Multitask
    Learners"). rows is vocab_size rounded up to a multiple of vocab_multiple: further rows belong to no token.
    bias=False leaves out the bias of every Linear and LayerNorm. residual_in_fp32=False: under autocast the stream that
    the blocks add to is of its type, not float32, which is half as much to read and write.
    Raises ValueError for a sequence longer than seq_len, if num_heads does not divide dim, or vocab_multiple < 1.

    Published sizes (dim, depth, num_heads): 768, 12, 12 | medium 1024, 24, 16 | large 1280, 36, 20 | xl 1600, 48, 25.
    """

    logits_are_head_of_features = True  # trainkit may compute the loss without the logits' gradient beside them

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        dropout: float = 0.0,
        bias: bool = True,
        vocab_multiple: int = 1,
        residual_in_fp32: bool = True,
    ):
        super().__init__()
        if vocab_multiple < 1:
            raise ValueError(f"vocab_multiple={vocab_multiple} is no number of rows to round up to; at least 1")
        rows = -(-vocab_size // vocab_multiple) * vocab_multiple
        self.seq_len, self.residual_in_fp32 = seq_len, residual_in_fp32
        self.token = nn.Embedding(rows, dim)
        self.position = nn.Embedding(seq_len, dim)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(dim, num_heads, dropout, bias) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, bias=bias)
        self.head = nn.Linear(dim, rows, bias=False)
        self.head.weight = self.token.weight
        self.apply(_init_weights)
        for name, weight in self.named_parameters():
            if name.endswith(("project.weight", "shrink.weight")):  # 2 depth of them add up in the residual stream
                nn.init.normal_(weight, std=0.02 / (2 * depth) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.features(tokens))  # [B, T, rows]

    def features(self, tokens: Tensor) -> Tensor:
        """The input of the head: tokens [B, T] -> [B, T, dim]."""
        length = tokens.shape[1]
        if length > self.seq_len:
            raise ValueError(f"a sequence of {length} tokens is longer than seq_len={self.seq_len}")
        x = self.dropout(self.token(tokens) + self.position.weight[:length])  # [B, T, dim]
        if not self.residual_in_fp32 and torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        for block in self.blocks:
            x = block(x)  # [B, T, dim]
        return self.norm(x)


class Block(nn.Module):
    """Pre-norm attention and a four times wider GELU feed-forward, each added to the stream: [B, T, dim] -> same."""

    def __init__(self, dim: int, num_heads: int, dropout: float, bias: bool):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, bias=bias)
        self.attention = Attention(dim, num_heads, dropout, bias)
        self.norm2 = nn.LayerNorm(dim, bias=bias)
        self.widen = nn.Linear(dim, 4 * dim, bias=bias)
        self.shrink = nn.Linear(4 * dim, dim, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.shrink(F.gelu(self.widen(self.norm2(x)), approximate="tanh")))


class Attention(nn.Module):
    """Causal multi-head self-attention [B, T, dim] -> [B, T, dim]."""

    def __init__(self, dim: int, num_heads: int, dropout: float, bias: bool):
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide dim={dim}")
        self.num_heads = num_heads
        self.dropout = nn.Dropout(dropout)  # of the attention's weights, within the kernel
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.project = nn.Linear(dim, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # [B, T, 3, heads, dim/heads]
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, heads, T, dim/heads]
        dropout = self.dropout.p if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.project(x.transpose(1, 2).flatten(2))  # [B, T, dim]


def _init_weights(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
