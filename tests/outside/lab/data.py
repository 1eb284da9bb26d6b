"""Data of a user's own."""

import torch
from lightning import LightningDataModule
from sklearn.datasets import load_diabetes, load_digits
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset


def digits() -> tuple[Tensor, Tensor]:
    """Images [N, 1, 8, 8] and classes [N]."""
    loaded = load_digits()
    return torch.tensor(loaded.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(loaded.target)


class Masks(Dataset):
    """Digits, and for each pixel whether it belongs to the digit."""

    def __init__(self, train: bool):
        images, _ = digits()
        self.images = images[:1500] if train else images[1500:]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index]
        return image, (image[0] > 0.5).long()


class ImagesAndTables(Dataset):
    """A digit, and a table of the mean of each of its columns, as a dict."""

    def __init__(self) -> None:
        self.images, self.classes = digits()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], Tensor]:
        image = self.images[index]
        return {"image": image, "table": image.mean(dim=(0, 1))}, self.classes[index]


class Views(Dataset):
    """Two noisy views of a digit, and its class."""

    def __init__(self, noise: float):
        self.images, self.classes = digits()
        self.noise = noise

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        image = self.images[index]
        views = [image + self.noise * torch.randn_like(image) for _ in range(2)]
        return (views[0], views[1]), self.classes[index]


class Diabetes(LightningDataModule):
    """Ten columns of a patient, and how far the illness came in a year, in standard deviations."""

    def __init__(self, batch_size: int):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage: str) -> None:
        table, progress = load_diabetes(return_X_y=True)
        columns = torch.tensor(table, dtype=torch.float32) * 20
        targets = torch.tensor((progress - progress.mean()) / progress.std(), dtype=torch.float32)
        self.train_set = TensorDataset(columns[:352], targets[:352])
        self.val_set = TensorDataset(columns[352:], targets[352:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, self.batch_size)
