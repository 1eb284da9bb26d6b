"""The arithmetic of a run: autocast and the kernels of attention."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainkit.config.errors import ConfigError
from trainkit.config.schema import RunConfig
from trainkit.distributed.topology import Devices
from trainkit.inputs import tensors_of

AUTOCAST_DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}  # by amp.precision
ATTENTION_KERNELS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
TRUE_DTYPES = {"bf16-true": torch.bfloat16}  # of all parameters, by amp.precision
GPU_KERNELS = ("cudnn", "efficient")


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    """The dtype that autocast computes in on a tensor's device; None outside of autocast."""
    device_type = tensor.device.type
    if not torch.is_autocast_enabled(device_type):
        return None
    return torch.get_autocast_dtype(device_type)


def call_with_autocast(call: Callable[..., Any], batch: tuple[Any, ...], precision: str) -> Any:
    """`call(*batch)` in an `amp.precision`, without a Trainer.

    As in Lightning's MixedPrecision, autocast is for the forward alone and caches no cast weights.
    """
    dtype = AUTOCAST_DTYPES.get(precision)
    if dtype is None:
        return call(*batch)
    with torch.autocast(tensors_of(batch)[0].device.type, dtype, cache_enabled=False):
        return call(*batch)


def attention_kernel(config: RunConfig, devices: Devices) -> AbstractContextManager[None]:
    """A context in which scaled_dot_product_attention runs the requested kernel, or fails if that kernel cannot.

    Raises ConfigError, before it is entered, for a GPU's kernel on a CPU.
    """
    requested = config.trainer.attention
    if requested == "auto":
        return nullcontext()
    if requested in GPU_KERNELS and devices.type == "cpu":
        raise ConfigError(f"trainer.attention = {requested}: needs a GPU; on a CPU use auto, flash or math")
    return sdpa_kernel(ATTENTION_KERNELS[requested])
