"""From what a network returns to its loss: mean cross entropy, without the logits' gradient beside them in memory."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

try:
    import triton
    import triton.language as tl
except ImportError:  # builds of torch for CPUs come without it
    triton = None


def logits_of(outputs: Any) -> Any:
    """The logits of what a network returns: they themselves, or what transformers' networks return has them within."""
    return getattr(outputs, "logits", outputs)


def linear_cross_entropy(features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """cross_entropy(features @ weight.T, targets): features [N, D], weight [C, D], both of one floating type, targets
    int64 [N] in 0..C-1 -> the mean loss, float32.

    The logits [N, C] are the one tensor of that size: they are of the features' type, are summed in float32, and their
    gradient takes their place in the forward pass. On a GPU one Triton kernel does so, which torch.compile sees
    through; the three matrix products are torch's. After Hsu et al. 2024, https://arxiv.org/abs/2410.10989, but in one
    piece: chunks of them make the weight's gradient be added up in memory.
    """
    loss: Tensor = _LinearCrossEntropy.apply(features, weight, targets)
    return loss


class _LinearCrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        logits = features @ weight.T  # [N, C]
        losses = to_gradients_(logits, targets) if logits.is_cuda else _to_gradients_(logits, targets)  # [N]
        ctx.save_for_backward(logits, features, weight)
        return losses.mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        gradients, features, weight = ctx.saved_tensors
        scale = grad / len(gradients)  # applied to the small products: 1/N would vanish in small numbers of type half
        return (
            ((gradients @ weight) * scale).to(features.dtype),
            ((gradients.T @ features) * scale).to(weight.dtype),
            None,
        )


def _to_gradients_(logits: Tensor, targets: Tensor) -> Tensor:
    """Replaces logits [N, C] by the gradient of each row's loss by them, softmax - one-hot; returns the losses [N]."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_softmax = wide.log_softmax(-1)
    gradients = log_softmax.exp()
    rows = torch.arange(len(targets), device=targets.device)
    gradients[rows, targets] -= 1
    logits.copy_(gradients)
    return -log_softmax[rows, targets]


if triton is None:
    to_gradients_ = _to_gradients_
else:
    # The fastest of 1024 to 16384 columns at a time and 4 to 32 warps, over 50,304 classes in bfloat16 on an H100.
    BLOCK, WARPS = 8192, 16

    @triton.jit
    def _to_gradients_kernel(logits, targets, losses, stride, num_classes, block: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)  # N x C is beyond 32 bits
        logits += row * stride
        target = tl.load(targets + row)
        wanted = tl.load(logits + target).to(tl.float32)
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
            gradient = tl.exp(x - log_sum) - tl.where(columns == target, 1.0, 0.0)
            tl.store(logits + columns, gradient.to(logits.dtype.element_ty), mask=columns < num_classes)
        tl.store(losses + row, log_sum - wanted)

    @torch.library.triton_op("trainkit::to_gradients_", mutates_args={"logits"})
    def to_gradients_(logits: Tensor, targets: Tensor) -> Tensor:
        """As `_to_gradients_`, in one pass over device memory to read and one to write."""
        losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        torch.library.wrap_triton(_to_gradients_kernel)[(len(logits),)](
            logits, targets, losses, logits.stride(0), logits.shape[1], block=BLOCK, num_warps=WARPS
        )
        return losses
