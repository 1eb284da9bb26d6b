"""From what a network returns to its loss: mean cross entropy, without the logits' gradient beside them in memory."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

try:
    import triton
    import triton.language as tl
except ImportError:  # builds of torch for CPUs come without it
    triton = None


LEFT_OUT = -100  # the target of a row without one: torch's ignore_index


def logits_of(outputs: Any) -> Any:
    """The logits of what a network returns: they themselves, or what transformers' networks return has them within."""
    return getattr(outputs, "logits", outputs)


def linear_cross_entropy(features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """cross_entropy(features @ weight.T, targets): features [N, D], weight [C, D], of one floating type, bfloat16 or
    wider, targets int64 [N] in 0..C-1, or -100 for a row to leave out -> the mean loss of the others, at least float32.

    The logits [N, C] are the one tensor of that size: they are of the features' type, are summed in float32, and their
    gradient takes their place in the forward pass. On a GPU one Triton kernel does so, which torch.compile sees
    through; the three matrix products are torch's. After Hsu et al. 2024, https://arxiv.org/abs/2410.10989, but in one
    piece: chunks of them make the weight's gradient be added up in memory. Other targets are an error on a CPU and a
    loss of NaN on a GPU. Has a first derivative only.
    """
    loss: Tensor = _LinearCrossEntropy.apply(features, weight, targets)
    return loss


class _LinearCrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        logits = features @ weight.T  # [N, C]
        losses = to_gradients_(logits, targets) if logits.is_cuda else _to_gradients_(logits, targets)  # [N]
        num_kept = (targets != LEFT_OUT).sum()
        ctx.save_for_backward(logits, features, weight, num_kept)
        return losses.sum() / num_kept

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        gradients, features, weight, num_kept = ctx.saved_tensors
        scale = grad / num_kept  # applied to the products, which are small
        return (
            ((gradients @ weight) * scale).to(features.dtype),
            ((gradients.T @ features) * scale).to(weight.dtype),
            None,
        )


def _to_gradients_(logits: Tensor, targets: Tensor) -> Tensor:
    """Replaces logits [N, C] by the gradient of each row's loss by them, softmax - one-hot; returns the losses [N]."""
    kept = (targets != LEFT_OUT)[:, None]
    places = targets[:, None].where(kept, 0)
    log_softmax = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    losses = -log_softmax.gather(1, places).where(kept, 0)
    ones = torch.ones_like(places, dtype=log_softmax.dtype)
    logits.copy_(log_softmax.exp().scatter_add(1, places, -ones).where(kept, 0))
    return losses[:, 0]


if triton is None:
    to_gradients_ = _to_gradients_
else:
    # The fastest of 1024 to 16384 columns at a time and 4 to 32 warps, over 50,304 classes in bfloat16 on an H100.
    BLOCK, WARPS = 8192, 16

    @triton.jit
    def _to_gradients_kernel(logits, targets, losses, stride, num_classes, left_out, block: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)  # N x C is beyond 32 bits
        logits += row * stride
        target = tl.load(targets + row)
        known = (target >= 0) & (target < num_classes)
        wanted = tl.load(logits + target, mask=known, other=float("nan")).to(tl.float32)
        kept = tl.where(target == left_out, 0.0, 1.0)
        # One program holds a row: what it reads for the sum is still in the L2 cache when it writes the gradient.
        largest = tl.full([block], -float("inf"), tl.float32)
        total = tl.zeros([block], tl.float32)
        for first in range(0, num_classes, block):
            columns = first + tl.arange(0, block)
            x = tl.load(logits + columns, mask=columns < num_classes, other=-float("inf")).to(tl.float32)
            larger = tl.maximum(largest, x)
            # In columns that no class has had yet, exp(-inf - -inf) would be NaN.
            total = tl.where(larger == -float("inf"), 0.0, total * tl.exp(largest - larger) + tl.exp(x - larger))
            largest = larger
        top = tl.max(largest, 0)
        log_sum = top + tl.log(tl.sum(total * tl.exp(largest - top), 0))
        for first in range(0, num_classes, block):
            columns = first + tl.arange(0, block)
            x = tl.load(logits + columns, mask=columns < num_classes, other=-float("inf")).to(tl.float32)
            gradient = kept * (tl.exp(x - log_sum) - tl.where(columns == target, 1.0, 0.0))
            tl.store(logits + columns, gradient.to(logits.dtype.element_ty), mask=columns < num_classes)
        tl.store(losses + row, tl.where(target == left_out, 0.0, log_sum - wanted))

    @torch.library.triton_op("trainkit::to_gradients_", mutates_args={"logits"})
    def to_gradients_(logits: Tensor, targets: Tensor) -> Tensor:
        """As `_to_gradients_`, in one pass over device memory to read and one to write."""
        losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        torch.library.wrap_triton(_to_gradients_kernel)[(len(logits),)](
            logits, targets, losses, logits.stride(0), logits.shape[1], LEFT_OUT, block=BLOCK, num_warps=WARPS
        )
        return losses
