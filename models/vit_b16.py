"""ViT: the vision transformer of Dosovitskiy et al. 2021, by default ViT-B/16."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ViT(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    Computes the same as transformers' ViTForImageClassification (norm_eps=1e-12) and timm's vit_base_patch16_224
    (1e-6): patches of patch_size x patch_size pixels and a class token, learned positions, pre-norm blocks, exact
    GELU, a linear layer on the class token (Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929). dropout is
    that of the positions, the attention and both layers of a block. residual_in_fp32=False: under autocast the stream
    that the blocks add to is of its type, not float32, which is half as much to read and write. Raises ValueError for
    images of another size, if patch_size does not divide image_size, or if num_heads does not divide dim.

    Published sizes (dim, depth, num_heads): base 768, 12, 12 | large 1024, 24, 16 | huge 1280, 32, 16.
    """

    def __init__(
        self,
        channels: int,
        image_size: int,
        num_classes: int,
        patch_size: int = 16,
        dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        dropout: float = 0.0,
        norm_eps: float = 1e-6,
        residual_in_fp32: bool = True,
    ):
        super().__init__()
        if image_size % patch_size:
            raise ValueError(f"patch_size={patch_size} does not divide image_size={image_size}")
        self.channels, self.image_size, self.patch_size = channels, image_size, patch_size
        self.residual_in_fp32 = residual_in_fp32
        self.patch = nn.Linear(channels * patch_size**2, dim)
        self.class_token = nn.Parameter(torch.empty(dim))
        self.position = nn.Parameter(torch.empty(1 + (image_size // patch_size) ** 2, dim))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(dim, num_heads, dropout, norm_eps) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.head = nn.Linear(dim, num_classes)
        self.apply(_init_weights)
        for weight in (self.class_token, self.position):
            nn.init.normal_(weight, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))  # [B, num_classes]

    def features(self, images: Tensor) -> Tensor:
        """The input of the head: images [B, channels, image_size, image_size] -> [B, dim]."""
        if images.shape[1:] != (self.channels, self.image_size, self.image_size):
            size = f"channels={self.channels}, image_size={self.image_size}"
            raise ValueError(f"images of shape {tuple(images.shape[1:])} do not fit {size}")
        x = self.patch(self._patches(images))  # [B, N, dim]
        x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)  # [B, 1 + N, dim]
        x = self.dropout(x + self.position)
        if not self.residual_in_fp32 and torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        for block in self.blocks[:-1]:
            x = block(x)  # [B, 1 + N, dim]
        x = self.blocks[-1](x, num_out=1)  # [B, 1, dim]: nothing reads the last feed-forward of the other tokens
        return self.norm(x[:, 0])

    def _patches(self, images: Tensor) -> Tensor:
        """The pixels of each patch, row by row: [B, C, S, S] -> [B, N, C P P].

        With a Linear on them it is a convolution of stride P, whose weight [dim, C, P, P] is the Linear's flattened.
        As one matrix product it can be faster than the kernels for convolutions.
        """
        size = self.patch_size
        x = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # [B, C, S/P, P, S/P, P]
        return x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class Block(nn.Module):
    """Pre-norm attention and a four times wider GELU feed-forward, each added to the stream.

    [B, T, dim] -> [B, T, dim], or the first num_out tokens alone: [B, num_out, dim].
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, norm_eps: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attention = Attention(dim, num_heads, dropout)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.widen = nn.Linear(dim, 4 * dim)
        self.shrink = nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, num_out: int | None = None) -> Tensor:
        x = (x + self.dropout(self.attention(self.norm1(x))))[:, :num_out]
        return x + self.dropout(self.shrink(F.gelu(self.widen(self.norm2(x)))))


class Attention(nn.Module):
    """Multi-head self-attention [B, T, dim] -> [B, T, dim]."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide dim={dim}")
        self.num_heads = num_heads
        self.dropout = nn.Dropout(dropout)  # of the attention's weights, within the kernel
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # [B, T, 3, heads, dim/heads]
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, heads, T, dim/heads]
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout.p if self.training else 0.0)
        return self.project(x.transpose(1, 2).flatten(2))  # [B, T, dim]


def _init_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
