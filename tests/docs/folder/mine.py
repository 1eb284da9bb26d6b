"""What the guides call `mine`: a network, its data, and the kinds of data that they name."""

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Net(nn.Module):
    def __init__(self, num_classes: int, width: int = 256):
        super().__init__()
        self.hidden = nn.Linear(64, width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.hidden(images.flatten(1)).relu())  # [B, 1, 8, 8] -> [B, num_classes]


class Train(Dataset):
    def __init__(self, size: int = 100):
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((1, 8, 8), index / self.size), index % 10


Val = Train


class Digits(lightning.LightningDataModule):
    def __init__(self, batch_size: int):
        super().__init__()
        self.batch_size = batch_size

    def _loader(self) -> DataLoader:
        return DataLoader(TensorDataset(torch.randn(256, 1, 8, 8), torch.arange(256) % 10), self.batch_size)

    train_dataloader = val_dataloader = _loader


def example_batch() -> tuple[Tensor, Tensor]:
    return torch.randn(16, 1, 8, 8), torch.arange(16) % 10
