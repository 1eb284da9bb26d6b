"""Parameters, gradients and the optimizer's state sharded over the ranks: FSDP2."""

from collections.abc import Collection
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from trainkit.distributed.collectives import COLLECTIVE_TIMEOUT, gather


class ShardedBlocks(ModelParallelStrategy):
    """FSDP2 over all ranks. A checkpoint is one file with whole tensors, as those of other strategies."""

    def __init__(self, world_size: int):
        super().__init__(
            data_parallel_size=world_size,
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            timeout=COLLECTIVE_TIMEOUT,
        )
        self._most_batches: int | float = 0  # of a validation, over all ranks

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Validate on a batch. A rank with fewer batches than others calls the network once more for each it lacks:
        every forward gathers parameters from all ranks."""
        assert self.lightning_module is not None
        batch, batch_idx = args
        num_batches = self.lightning_module.trainer.num_val_batches[0]
        if batch_idx == 0:
            self._most_batches = max(gather(num_batches))
        outputs = super().validation_step(*args, **kwargs)
        if batch_idx == num_batches - 1:
            with self.precision_plugin.val_step_context():
                for _ in range(int(self._most_batches - num_batches)):
                    self.lightning_module(*batch)
        return outputs

    @property
    def data_parallel_mesh(self) -> DeviceMesh:
        return self.device_mesh["data_parallel"]


def shard(module: nn.Module, blocks: Collection[nn.Module], mesh: DeviceMesh, dtype: torch.dtype | None) -> None:
    """Shard each block, and in the module what is in none of them.

    A block's parameters are gathered for its forward and again for its backward. On a GPU that is in `dtype`, which
    autocast would cast them to; their gradients are averaged in float32. What is in no block is gathered once, as it
    is.
    """
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=_policy(block, mesh, dtype))
    fully_shard(module, mesh=mesh)


def _policy(block: nn.Module, mesh: DeviceMesh, dtype: torch.dtype | None) -> MixedPrecisionPolicy:
    # A CPU's layer_norm takes no parameters of another dtype than its input's, and batch_norm none of another dtype
    # than its running statistics'.
    if mesh.device_type == "cpu" or any(buffer.is_floating_point() for buffer in block.buffers()):
        dtype = None
    # Inputs stay as they are: autocast chooses for each operation.
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
