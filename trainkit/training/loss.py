"""The losses of conf/objective, and cross entropy of a linear head without memory for the gradient of the logits."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, mse_loss

try:
    import triton
    import triton.language as tl
except ImportError:  # builds of torch for CPUs come without it
    triton = None

IGNORE_INDEX = -100  # the target of rows that do not count, as in torch's cross_entropy


class CrossEntropy(nn.Module):
    """Mean cross entropy of logits against the targets, int64 of the logits' shape without `dim`, that of the classes.

    `dim` is -1 for [..., K], 1 for [B, K, ...] as torch has it. Targets of IGNORE_INDEX do not count.
    """

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.dim == 1:
            return cross_entropy(logits, targets)
        return cross_entropy(logits.movedim(self.dim, -1).flatten(0, -2), targets.flatten())

    def for_metric(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, K, ...] and targets [B, ...], as torchmetrics takes them."""
        return logits.movedim(self.dim, 1), targets


class MeanSquaredError(nn.Module):
    """The mean of (output - target)**2. Outputs have the shape of the targets, or one more dimension of size 1.

    Raises ValueError for other shapes, which torch would broadcast.
    """

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs, targets = self.for_metric(outputs, targets)
        return mse_loss(outputs, targets.to(outputs.dtype))

    def for_metric(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and targets of one shape."""
        if outputs.shape == (*targets.shape, 1):
            outputs = outputs.squeeze(-1)
        if outputs.shape != targets.shape:
            raise ValueError(f"outputs {tuple(outputs.shape)} for targets {tuple(targets.shape)}")
        return outputs, targets


def linear_cross_entropy(features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """cross_entropy(features @ weight.T, targets): the mean loss of the rows that count, at least float32.

    features [N, D] and weight [C, D] are of one floating dtype, bfloat16 or wider; targets are int64 [N], in 0..C-1 or
    IGNORE_INDEX. Other targets raise an error on a CPU and give a loss of NaN on a GPU. Only the first derivative
    exists.

    The logits [N, C] are the only tensor of that size. They have the features' dtype and are summed in float32; their
    gradient replaces them in the forward pass. On a GPU one Triton kernel does so, which torch.compile can trace; the
    three matrix products are torch's. After Hsu et al. 2024, https://arxiv.org/abs/2410.10989, but not in chunks, which
    would add up the gradient of the weight in memory.
    """
    loss: Tensor = _LinearCrossEntropy.apply(features, weight, targets)
    return loss


class _LinearCrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        logits = features @ weight.T  # [N, C]
        to_gradients = to_gradients_ if logits.is_cuda else _to_gradients_
        losses = to_gradients(logits, targets)  # [N]
        num_targets = (targets != IGNORE_INDEX).sum()
        ctx.save_for_backward(logits, features, weight, num_targets)
        return losses.sum() / num_targets

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        gradients, features, weight, num_targets = ctx.saved_tensors
        scale = grad / num_targets  # applied to the products, which are small
        features_gradient = ((gradients @ weight) * scale).to(features.dtype)
        weight_gradient = ((gradients.T @ features) * scale).to(weight.dtype)
        return features_gradient, weight_gradient, None


def _to_gradients_(logits: Tensor, targets: Tensor) -> Tensor:
    """Replace logits [N, C] by the gradients of the rows' losses, softmax - one-hot. Returns the losses [N]."""
    counts = (targets != IGNORE_INDEX)[:, None]
    classes = targets[:, None].where(counts, 0)
    log_softmax = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    losses = -log_softmax.gather(1, classes).where(counts, 0)
    ones = torch.ones_like(classes, dtype=log_softmax.dtype)
    logits.copy_(log_softmax.exp().scatter_add(1, classes, -ones).where(counts, 0))
    return losses[:, 0]


if triton is None:
    to_gradients_ = _to_gradients_
else:
    # The fastest of 1024 to 16384 columns at a time and 4 to 32 warps, over 50,304 classes in bfloat16 on an H100.
    BLOCK, WARPS = 8192, 16

    @triton.jit
    def _to_gradients_kernel(logits, targets, losses, stride, num_classes, ignore_index, block: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)  # N x C is beyond 32 bits
        logits += row * stride
        target = tl.load(targets + row)
        in_range = (target >= 0) & (target < num_classes)
        target_logit = tl.load(logits + target, mask=in_range, other=float("nan")).to(tl.float32)
        weight = tl.where(target == ignore_index, 0.0, 1.0)
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
            gradient = weight * (tl.exp(x - log_sum) - tl.where(columns == target, 1.0, 0.0))
            tl.store(logits + columns, gradient.to(logits.dtype.element_ty), mask=columns < num_classes)
        tl.store(losses + row, tl.where(target == ignore_index, 0.0, log_sum - target_logit))

    @torch.library.triton_op("trainkit::to_gradients_", mutates_args={"logits"})
    def to_gradients_(logits: Tensor, targets: Tensor) -> Tensor:
        """As `_to_gradients_`, in one pass over device memory to read and one to write."""
        losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        torch.library.wrap_triton(_to_gradients_kernel)[(len(logits),)](
            logits, targets, losses, logits.stride(0), logits.shape[1], IGNORE_INDEX, block=BLOCK, num_warps=WARPS
        )
        return losses
