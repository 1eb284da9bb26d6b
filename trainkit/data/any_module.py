"""A LightningDataModule of the user's own."""

from collections.abc import Callable, Collection
from typing import Any

from lightning import LightningDataModule
from lightning.pytorch.core.hooks import DataHooks
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor

from trainkit.config.errors import ConfigError
from trainkit.data.batches import check_pair
from trainkit.data.module import DataModule
from trainkit.inputs import Batch, map_tensors

TRANSFER_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


class AnyModule(DataModule):
    """The batches (inputs, targets) of a LightningDataModule, in the order of its own loaders.

    `module` makes it. Over several processes Lightning splits its loaders, as for any LightningDataModule. A network
    that is only called gets the validation batches. Raises ConfigError for what is no LightningDataModule, for several
    loaders to validate on, and for its own transfer of batches where no Trainer calls that.
    """

    def __init__(
        self,
        *,
        module: Callable[[], LightningDataModule] | None,
        batch_size: int | None = None,
        inputs: str | None = None,
        **sizes: int,
    ):
        super().__init__(batch_size=batch_size or 0, inputs=inputs, **sizes)
        if module is None:
            raise ConfigError(
                "data.module._target_ = null: names no LightningDataModule; set data.module._target_=YOUR_MODULE.CLASS"
            )
        self.module = module()
        if not isinstance(self.module, LightningDataModule):
            raise ConfigError(f"data.module = {type(self.module).__name__}: is no LightningDataModule; give one")
        self.prepare_data_per_node = self.module.prepare_data_per_node
        self._transfer_hooks = [hook for hook in TRANSFER_HOOKS if is_overridden(hook, self.module, parent=DataHooks)]
        for hook in self._transfer_hooks:
            setattr(self, hook, getattr(self.module, hook))

    def prepare_data(self) -> None:
        self.module.prepare_data()

    def setup(self, stage: str) -> None:
        """Set the module up for training: it then has its loaders of training and validation."""
        self.module.trainer = self.trainer
        self.module.setup("fit")

    def teardown(self, stage: str) -> None:
        self.module.teardown(stage)

    def state_dict(self) -> dict[str, Any]:
        return self.module.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.module.load_state_dict(state_dict)

    def train_dataloader(self) -> Any:
        self._check_transfer()
        return self.module.train_dataloader()

    def val_dataloader(self) -> Any:
        self._check_transfer()
        name = type(self.module).__name__
        if not is_overridden("val_dataloader", self.module, parent=LightningDataModule):
            raise ConfigError(
                f"data.module = {name}: has no val_dataloader; add it, or set trainer.limit_val_batches=0"
            )
        loader = self.module.val_dataloader()
        if isinstance(loader, list | tuple | dict):
            raise ConfigError(
                f"data.module = {name}: val_dataloader returns a {type(loader).__name__}; give one loader"
            )
        return loader

    def sample(self) -> Batch:
        """The first two samples of the first batch, on the CPU and without a trainer."""
        with isolate_rng(include_cuda=False):
            self.prepare_data()
            self.setup("fit")
            batch = next(iter(self.module.train_dataloader()))
            for hook in self._transfer_hooks:
                if hook != "transfer_batch_to_device":
                    batch = getattr(self.module, hook)(batch, 0)
        check_pair(batch, "data.module")
        inputs, targets = map_tensors(_first_two, batch)
        return inputs, targets

    def possible_sizes(self) -> dict[int, Collection[int]]:
        return {}

    def _check_transfer(self) -> None:
        if self._transfer_hooks and self.trainer is None:
            raise ConfigError(
                f"data.module = {type(self.module).__name__}: its {self._transfer_hooks[0]} is called by a Trainer "
                "alone; use train.py, or do its work in the Dataset or the network"
            )


def _first_two(tensor: Tensor) -> Tensor:
    return tensor[:2] if tensor.ndim > 0 else tensor
