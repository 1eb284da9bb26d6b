"""DistributedDataParallel."""

import inspect
from typing import Any

from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from trainkit.config.schema import DdpConfig
from trainkit.distributed.collectives import COLLECTIVE_TIMEOUT


class TrainingDDP(DDPStrategy):
    """DDP for training alone, on the stream that trains.

    Validation calls the network itself: it needs no DDP, whose forward waits forever for a rank that has one batch
    less.
    """

    def __init__(self, ddp: DdpConfig):
        hook = bf16_compress_hook if ddp.compression == "bf16" else None
        super().__init__(timeout=COLLECTIVE_TIMEOUT, ddp_comm_hook=hook, **ddp_arguments(ddp))

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        assert self.lightning_module is not None
        with self.precision_plugin.val_step_context():
            return self.lightning_module.validation_step(*args, **kwargs)

    def _setup_model(self, model: nn.Module) -> DistributedDataParallel:
        # Lightning 2.6 wraps the model on a side stream, so that each backward waits between streams. Remove this
        # method with the release that has https://github.com/Lightning-AI/pytorch-lightning/pull/21746.
        # tests/test_workarounds.py fails when it is no longer needed. `_ddp_kwargs` is Lightning's private name.
        return DistributedDataParallel(module=model, device_ids=self.determine_ddp_device_ids(), **self._ddp_kwargs)


def ddp_arguments(ddp: DdpConfig) -> dict[str, Any]:
    """The arguments of DistributedDataParallel."""
    return {
        "bucket_cap_mb": ddp.bucket_cap_mb,
        "static_graph": ddp.static_graph,
        "gradient_as_bucket_view": ddp.gradient_as_bucket_view,
        "find_unused_parameters": ddp.find_unused_parameters,
        _buffers_argument(): ddp.broadcast_buffers,
    }


def _buffers_argument() -> str:
    """DDP's argument for `ddp.broadcast_buffers`. torch 2.13 renamed it; the old name warns there."""
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters:
        return "forward_sync_buffers"
    return "broadcast_buffers"
