"""The speed of our kernels and of our choice of kernels on one GPU: forward and backward of each alone, in one run.

    python benchmarks/kernels.py

costly_activation: eager, compiled, and our Triton kernel, with the share of the measured copy's bandwidth that reading
and writing each tensor once would need. linear_cross_entropy: beside cross_entropy of the product, eager and compiled,
and beside the same algorithm in torch.compile; with the memory it adds. Attention: each kernel of
scaled_dot_product_attention on the shapes of our networks. All figures are medians of 20 calls.
"""

import sys
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from trainkit.models.local_optimized import costly_activation, costly_activation_triton
from trainkit.training import loss
from trainkit.training.loss import linear_cross_entropy

CALLS, WARM_UP = 20, 5
NUM_ELEMENTS = 2**27
TOKENS, DIM, CLASSES = 16_384, 768, 50_304  # of a GPT-2 124M step at 16 x 1024
SHAPES = {"gpt2": (16, 12, 1024, 64), "vit_b16": (128, 12, 197, 64), "bert": (64, 12, 128, 64)}  # B, heads, T, width
BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")


def median_ms(call: Callable[[], object]) -> float:
    """The median milliseconds of CALLS calls, timed one by one by the device."""
    times = []
    for _ in range(WARM_UP + CALLS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return median(times[WARM_UP:])


def with_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], object]:
    """A call of `function` and of its backward, for the gradients of all inputs that require one."""
    parameters = [x for x in inputs if x.requires_grad]
    output_gradient = torch.ones_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), parameters, output_gradient)


def copy_bytes_per_s() -> float:
    """The bytes that a copy on the device reads and writes in a second."""
    a, b = (torch.empty(2**30, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * a.nbytes / median_ms(lambda: b.copy_(a)) * 1e3


def activation() -> None:
    copy = copy_bytes_per_s()
    print(f"copy: {copy / 1e12:.2f} TB/s")
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(NUM_ELEMENTS, device="cuda", dtype=dtype, requires_grad=True)
        for name, function in (
            ("eager", costly_activation),
            ("compiled", torch.compile(costly_activation)),
            ("triton", costly_activation_triton),
        ):
            with torch.no_grad():
                forward = median_ms(partial(function, x))
            both = median_ms(with_gradients(function, x))
            shares = (2e3 * x.nbytes / forward / copy, 5e3 * x.nbytes / both / copy)
            print(
                f"costly_activation {dtype} {name}: forward {forward:.3f} ms ({shares[0]:.1%} of the copy), "
                f"with backward {both:.3f} ms ({shares[1]:.1%})"
            )


def plain(features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(features @ weight.T, targets)


def language_model_loss() -> None:
    torch.manual_seed(0)
    features = torch.randn(TOKENS, DIM, device="cuda").bfloat16().requires_grad_()
    weight = (0.02 * torch.randn(CLASSES, DIM, device="cuda")).bfloat16().requires_grad_()
    targets = torch.randint(CLASSES, (TOKENS,), device="cuda")
    kernel = loss.to_gradients_
    for name, function, in_place in (
        ("cross_entropy, eager", plain, kernel),
        ("cross_entropy, compiled", torch.compile(plain), kernel),
        ("linear_cross_entropy without the kernel, compiled", torch.compile(linear_cross_entropy), loss._to_gradients_),
        ("linear_cross_entropy, eager", linear_cross_entropy, kernel),
        ("linear_cross_entropy, compiled", torch.compile(linear_cross_entropy), kernel),
    ):
        loss.to_gradients_ = in_place
        torch._dynamo.reset()
        call = with_gradients(function, features, weight, targets)
        time_ms = median_ms(call)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        added = torch.cuda.max_memory_allocated() - before
        print(f"{name}: {time_ms:.3f} ms with backward, {added / 2**30:.2f} GiB at its peak")


def attention() -> None:
    for name, shape in SHAPES.items():
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        for backend in BACKENDS:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                function = partial(scaled_dot_product_attention, is_causal=name == "gpt2")
                time_ms = median_ms(with_gradients(function, q, k, v))
                print(f"attention {name} {backend.lower()}: {time_ms:.3f} ms with backward")


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("kernels: needs a CUDA device")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    activation()
    language_model_loss()
    attention()
