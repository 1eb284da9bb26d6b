"""How ranks train together: Lightning's strategies, as the config asks for them."""

import inspect
from typing import Any

from lightning.pytorch.strategies import DDPStrategy, Strategy
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainkit.config.schema import RunConfig


def strategy(config: RunConfig, world_size: int) -> Strategy | str:
    """DDP where there are several processes or it was asked for; else Lightning's own choice for one device."""
    ddp = config.ddp
    if world_size == 1 and ddp.strategy.value == "auto":
        return "auto"
    # torch 2.13 renamed the argument; the old name warns there.
    renamed = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    arguments: dict[str, Any] = {
        "bucket_cap_mb": ddp.bucket_cap_mb,
        "static_graph": ddp.static_graph,
        "gradient_as_bucket_view": ddp.gradient_as_bucket_view,
        "find_unused_parameters": ddp.find_unused_parameters,
        "forward_sync_buffers" if renamed else "broadcast_buffers": ddp.broadcast_buffers,
    }
    return TrainingDDP(**arguments)


class TrainingDDP(DDPStrategy):
    """DDP for training alone, on the stream that trains.

    Validation calls the network itself: DDP has nothing to do there, and the collectives of its forward would wait
    for ever for a rank that has a batch less.
    """

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        assert self.lightning_module is not None
        with self.precision_plugin.val_step_context():
            return self.lightning_module.validation_step(*args, **kwargs)

    def _setup_model(self, model: nn.Module) -> DistributedDataParallel:
        # Lightning 2.6 wraps on a side stream, and each backward then waits between streams. It can go with the
        # release that has https://github.com/Lightning-AI/pytorch-lightning/pull/21746; a test tells.
        return DistributedDataParallel(module=model, device_ids=self.determine_ddp_device_ids(), **self._ddp_kwargs)
