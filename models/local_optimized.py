"""A small convolutional network whose hot spots are two functions that can be compiled, or replaced, alone."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

try:
    import triton
    import triton.language as tl
except ImportError:  # builds of torch for CPUs come without it
    triton = None


def costly_activation(x: Tensor) -> Tensor:
    """x tanh(softplus(x)) + 0.1 sin(x) sigmoid(x) exp(-x^2), element by element: any shape -> same.

    Mish (Misra 2019, https://arxiv.org/abs/1908.08681) and a ripple about 0. Eager runs twelve kernels; each reads
    and writes as much as all of x; one fused kernel reads x once and writes the result once.
    """
    gate = F.softplus(x)
    gate = torch.tanh(gate)
    mish = x * gate
    ripple = torch.sin(x)
    ripple = ripple * torch.sigmoid(x)
    ripple = ripple * torch.exp(-x * x)
    return mish + 0.1 * ripple


def costly_activation_triton(x: Tensor) -> Tensor:
    """`costly_activation` in one kernel, and its gradient in another; computed in float32, returned in x's type.

    torch.compile takes the kernels into its graph as they are. On a CPU it is the formula itself.
    """
    return _fused(x.contiguous(memory_format=_layout(x))) if x.is_cuda else costly_activation(x)


def channel_spatial_attention(x: Tensor, reduce: Tensor, expand: Tensor, spatial: Tensor) -> Tensor:
    """Scales x [B, C, H, W] by a number in (0, 1) for each channel, then by one for each pixel: -> same shape.

    CBAM, Woo et al. 2018, https://arxiv.org/abs/1807.06521. Channels: reduce [R, C] and expand [C, R] are the layers
    of a network over each channel's mean and over its maximum; the two are added. Pixels: spatial [1, 2, K, K], K odd,
    the paper's 7, is a convolution over the mean and the maximum of the channels.
    """
    pooled = torch.stack([x.mean((2, 3)), x.amax((2, 3))])  # [2, B, C]
    channels = F.linear(F.relu(F.linear(pooled, reduce)), expand).sum(0).sigmoid()  # [B, C]
    x = x * channels[:, :, None, None]
    pooled = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)  # [B, 2, H, W]
    pixels = F.conv2d(pooled, spatial, padding=spatial.shape[-1] // 2).sigmoid()  # [B, 1, H, W]
    return x * pixels


class LocalOptimized(nn.Module):
    """Classifies images [B, channels, H, W], H and W from 4 up, into logits [B, num_classes].

    Its stages look up the two functions above in this module at each call: after
    `local_optimized.costly_activation = torch.compile(costly_activation)` that function alone is compiled. With
    triton_activation the first of them is costly_activation_triton. Raises ValueError if triton is not installed, or if
    reduction, of the channels within the attention, does not divide width.
    """

    def __init__(
        self, channels: int, num_classes: int, width: int = 64, reduction: int = 8, triton_activation: bool = False
    ):
        super().__init__()
        if width % reduction:
            raise ValueError(f"reduction={reduction} does not divide width={width}")
        if triton_activation and triton is None:
            raise ValueError("triton_activation=True needs triton, which comes with torch's builds for GPUs")
        self.stage1 = ConvStage(channels, width, reduction, triton_activation)
        self.stage2 = ConvStage(width, 2 * width, reduction, triton_activation)
        self.fc = nn.Linear(2 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stage1(images)  # [B, width, H/2, W/2]
        x = self.stage2(x)  # [B, 2 width, H/4, W/4]
        return self.fc(x.mean((2, 3)))  # [B, num_classes]


class ConvStage(nn.Module):
    """Conv, BatchNorm, activation, attention and pooling: [B, width_in, H, W] -> [B, width_out, H/2, W/2]."""

    def __init__(self, width_in: int, width_out: int, reduction: int, triton_activation: bool):
        super().__init__()
        self.triton_activation = triton_activation
        self.conv = nn.Conv2d(width_in, width_out, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width_out)
        self.reduce = nn.Linear(width_out, width_out // reduction, bias=False)
        self.expand = nn.Linear(width_out // reduction, width_out, bias=False)
        self.spatial = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        activation = costly_activation_triton if self.triton_activation else costly_activation
        x = activation(self.bn(self.conv(x)))  # [B, width_out, H, W]
        x = channel_spatial_attention(x, self.reduce.weight, self.expand.weight, self.spatial.weight)
        return F.max_pool2d(x, 2)  # [B, width_out, H/2, W/2]


if triton is not None:
    BLOCK = 1024  # elements of a program: 8 for each of the 128 threads of 4 warps, 16 bytes in bfloat16

    @triton.jit
    def _gates(x):
        """p = n (n + 2), n = e^x, of tanh(softplus(x)) = p / (p + 2), the sigmoid, exp(-x^2)."""
        n = tl.exp(tl.minimum(x, 20.0))  # beyond 20 both quotients are 1 in float32
        return n * (n + 2), n / (1 + n), tl.exp(-x * x)

    @triton.jit
    def _forward_kernel(x, y, num_elements, block: tl.constexpr):
        places = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        inside = places < num_elements
        v = tl.load(x + places, mask=inside).to(tl.float32)
        p, sigmoid, bell = _gates(v)
        tl.store(y + places, (v * p / (p + 2) + 0.1 * tl.sin(v) * sigmoid * bell).to(y.dtype.element_ty), mask=inside)

    @triton.jit
    def _backward_kernel(x, grad_y, grad_x, num_elements, block: tl.constexpr):
        places = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        inside = places < num_elements
        v = tl.load(x + places, mask=inside).to(tl.float32)
        g = tl.load(grad_y + places, mask=inside).to(tl.float32)
        p, sigmoid, bell = _gates(v)
        # 1 - tanh^2 as one quotient: the difference loses all its digits where tanh nears 1.
        mish = p / (p + 2) + v * sigmoid * 4 * (p + 1) / ((p + 2) * (p + 2))
        ripple = bell * sigmoid * (tl.cos(v) + tl.sin(v) * (1 - sigmoid - 2 * v))
        tl.store(grad_x + places, (g * (mish + 0.1 * ripple)).to(grad_x.dtype.element_ty), mask=inside)

    @torch.library.triton_op("models::costly_activation", mutates_args={})
    def _fused(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        torch.library.wrap_triton(_forward_kernel)[grid](x, y, x.numel(), block=BLOCK)
        return y

    @torch.library.triton_op("models::costly_activation_backward", mutates_args={})
    def _fused_backward(x: Tensor, grad_y: Tensor) -> Tensor:
        grad_x = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        torch.library.wrap_triton(_backward_kernel)[grid](x, grad_y, grad_x, x.numel(), block=BLOCK)
        return grad_x

    def _keep(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.layout = _layout(*inputs)

    def _layout(x: Tensor) -> torch.memory_format:
        """The order that x lies in, which the kernels keep: they go through memory from one end to the other."""
        channels_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
        return torch.channels_last if channels_last else torch.contiguous_format

    _fused.register_autograd(
        lambda ctx, grad_y: _fused_backward(*ctx.saved_tensors, grad_y.contiguous(memory_format=ctx.layout)),
        setup_context=_keep,
    )
