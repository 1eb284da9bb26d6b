"""Real images without a download: scikit-learn's handwritten digits."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from trainkit.config.errors import refuse
from trainkit.data.batches import ArrayDataset
from trainkit.data.module import DataModule, contradictions, val_fraction_complaints


class Digits(DataModule):
    """1,797 handwritten digits: float32 [B, 1, 8, 8] in 0..1, ten classes. The seed chooses the validation samples.

    Source: the test set of Alpaydin and Kaynak 1998, https://doi.org/10.24432/C50P49. Raises ConfigError for sizes
    that are not those of the data, and for a val_fraction that leaves nothing to train or to validate on.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        num_workers: int = 0,
        seed: int = 0,
        val_fraction: float = 0.2,
        inputs: str = "images",
        channels: int = 1,
        image_size: int = 8,
        num_classes: int = 10,
    ):
        super().__init__(
            batch_size=batch_size,
            num_workers=num_workers,
            seed=seed,
            inputs=inputs,
            channels=channels,
            image_size=image_size,
            num_classes=num_classes,
        )
        self.val_fraction = val_fraction
        complaints = contradictions(self, inputs="images", channels=1, image_size=8, num_classes=10)
        refuse(complaints + val_fraction_complaints(val_fraction, example=0.2))

    def setup(self, stage: str) -> None:
        images, targets = load_digits(return_X_y=True)  # [1797, 64] in 0..16, [1797]
        images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(self.seed)).numpy()
        val, train = np.split(order, [round(len(order) * self.val_fraction)])
        self.train_set = ArrayDataset(images[train], targets[train])
        self.val_set = ArrayDataset(images[val], targets[val])
